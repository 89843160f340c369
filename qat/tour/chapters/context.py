"""What a Function keeps for its backward, for how long, and what must not change meanwhile."""

from typing import Any

import torch

from qat.tour.errors import NO_ERROR, error_of
from qat.tour.expectation import Contains
from qat.tour.experiment import Chapter, Measured
from qat.tour.functions import DoubleInPlace, Square, SquareOnCtx
from qat.tour.graph import TracedGraph
from qat.tour.trace import differentiate, leaf, trace

CHAPTER = Chapter("What a Function keeps")


def _changed(function: Any, caption: str, differs: str = "") -> tuple[TracedGraph, torch.Tensor | None]:
    """The backward of a square whose input was multiplied by 10 after the forward, and its gradient."""
    x = leaf(1.0, 2.0, 3.0)
    b = x * 1.0  # not a leaf, so it may be changed in place
    y = function(b)
    total = y.sum()
    b.mul_(10)
    graph = trace(total, check=lambda x: (x * x).sum(), caption=caption, differs=differs, x=x, y=y)
    return graph, x.grad


@CHAPTER.experiment(
    "A tensor on ctx: a wrong gradient and no error",
    why="ctx.x is no copy: backward reads the changed values, ten times as large as those that forward used.",
    expected={"error": NO_ERROR, "gradient": [20.0, 40.0, 60.0]},
)
def on_ctx() -> Measured:
    why = "The gradient is wrong: b was changed in place between forward and backward."
    graph, gradient = _changed(SquareOnCtx.apply, "", why)
    return Measured({"error": graph.error or NO_ERROR, "gradient": gradient}, [graph])


@CHAPTER.experiment(
    "save_for_backward: the same change is an error",
    why="It records the version of the tensor. backward raises an error where the version has changed.",
    expected={
        "error": Contains("is at version 1; expected version 0 instead"),
        "gradient, b not changed": [2.0, 4.0, 6.0],
    },
)
def saved() -> Measured:
    changed, _ = _changed(Square.apply, "b changed")
    right = differentiate(lambda x: Square.apply(x * 1.0), caption="b not changed", x=leaf(1.0, 2.0, 3.0))
    values = {"error": changed.error, "gradient, b not changed": right.values["gradient"]}
    return Measured(values, [changed, *right.graphs])


@CHAPTER.experiment(
    "An in-place forward must call mark_dirty",
    why="Without it, b has new values but its old history: the gradient lacks the factor 2.",
    expected={
        "b, unmarked": [2.0, 4.0, 6.0],
        "gradient, unmarked": [1.0, 1.0, 1.0],
        "b, mark_dirty": [2.0, 4.0, 6.0],
        "gradient, mark_dirty": [2.0, 2.0, 2.0],
        "on a leaf": Contains("a leaf Variable that requires grad"),
    },
)
def in_place() -> Measured:
    measured: dict[str, Any] = {}
    graphs = []
    wrong = "The gradient is wrong: autograd does not know that b was changed."
    for mark, name, differs in ((False, "unmarked", wrong), (True, "mark_dirty", "")):
        x = leaf(1.0, 2.0, 3.0)
        b = x * 1.0
        DoubleInPlace.apply(b, mark)
        graphs.append(trace(b.sum(), caption=name, check=lambda x: 2 * x.sum(), differs=differs, x=x, b=b))
        measured |= {f"b, {name}": b, f"gradient, {name}": x.grad}
    measured["on a leaf"] = error_of(lambda: DoubleInPlace.apply(leaf(1.0), True))
    return Measured(measured, graphs)


@CHAPTER.experiment(
    "A graph serves one backward",
    why="backward frees the saved tensors. retain_graph=True keeps them, and then the gradients add up.",
    expected={
        "second backward": Contains("Trying to backward through the graph a second time"),
        "twice with retain_graph": [4.0, 8.0],
        "a new forward": [2.0, 4.0],
    },
)
def freed() -> Measured:
    x, twice = leaf(1.0, 2.0), leaf(1.0, 2.0)
    y = Square.apply(x)
    total = y.sum()
    total.backward()
    second = trace(total, caption="second backward", x=x, y=y)
    total = Square.apply(twice).sum()
    total.backward(retain_graph=True)
    total.backward()
    new = differentiate(Square.apply, caption="a new forward", x=leaf(1.0, 2.0))
    values = {"second backward": second.error, "twice with retain_graph": twice.grad}
    return Measured(values | {"a new forward": new.values["gradient"]}, [second, *new.graphs])

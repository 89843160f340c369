"""What a Function keeps for its backward, for how long, and what must not change meanwhile."""

from typing import Any

import torch

from qat.tour.errors import NO_ERROR, error_of
from qat.tour.experiment import Measured
from qat.tour.functions import DoubleInPlace, Square, SquareOnCtx
from qat.tour.graph import TracedGraph
from qat.tour.trace import differentiate, leaf, trace


def _changed(function: Any, caption: str, differs: str = "") -> tuple[TracedGraph, torch.Tensor | None]:
    """The backward of a square whose input was multiplied by 10 after the forward, and its gradient."""
    x = leaf(1.0, 2.0, 3.0)
    b = x * 1.0  # not a leaf, so it may be changed in place
    y = function(b)
    b.mul_(10)
    graph = trace(y.sum(), check=lambda x: (x * x).sum(), caption=caption, differs=differs, x=x, y=y)
    return graph, x.grad


def on_ctx() -> Measured:
    why = "The gradient is wrong: b was changed in place between forward and backward."
    graph, gradient = _changed(SquareOnCtx.apply, "", why)
    return {"error": graph.error or NO_ERROR, "gradient": gradient}, [graph]


def saved() -> Measured:
    changed, _ = _changed(Square.apply, "b changed")
    x = leaf(1.0, 2.0, 3.0)
    _, graphs = differentiate(lambda x: Square.apply(x * 1.0), caption="b not changed", x=x)
    return {"error": changed.error, "gradient, b not changed": x.grad}, [changed, *graphs]


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
    return measured, graphs


def freed() -> Measured:
    x, twice = leaf(1.0, 2.0), leaf(1.0, 2.0)
    y = Square.apply(x)
    total = y.sum()
    total.backward()
    second = trace(total, caption="second backward", x=x, y=y)
    total = Square.apply(twice).sum()
    total.backward(retain_graph=True)
    total.backward()
    new, graphs = differentiate(Square.apply, caption="a new forward", x=leaf(1.0, 2.0))
    values = {"second backward": second.error, "twice with retain_graph": twice.grad}
    return values | {"a new forward": new["gradient"]}, [second, *graphs]

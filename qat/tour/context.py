"""Chapter 3: what a Function keeps, for how long, and what may not change meanwhile."""

from typing import Any

import torch

from qat.tour.expected import Says
from qat.tour.experiment import Chapter, Outcome, experiment, raised
from qat.tour.functions import Double, Square, SquareOnCtx
from qat.tour.trace import trace


@experiment(
    "A tensor on ctx: wrong without a word",
    why="ctx.x is a reference: forward saw the old values, backward reads the new ones, ten times as large.",
    expected={"error": "", "gradient": [20.0, 40.0, 60.0]},
)
def on_ctx() -> Outcome:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = x * 1.0  # not a leaf, so that it may be changed in place
    y = SquareOnCtx.apply(b)
    total = y.sum()
    b.mul_(10)
    graph = trace(
        total,
        check=lambda x: (x * x).sum(),
        differs="The gradient is wrong: b was changed in place between forward and backward.",
        x=x,
        y=y,
    )
    return Outcome({"error": graph.error, "gradient": x.grad}, (graph,))


@experiment(
    "save_for_backward: the same change is an error",
    why="It notes the tensor's version and compares it when backward asks for the tensor.",
    expected={
        "error": Says("is at version 1; expected version 0 instead"),
        "gradient, b not changed": [2.0, 4.0, 6.0],
    },
)
def saved() -> Outcome:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = x * 1.0
    y = Square.apply(b)
    total = y.sum()
    b.mul_(10)
    changed = trace(total, caption="b changed", x=x, y=y)
    b = x * 1.0
    y = Square.apply(b)
    right = trace(y.sum(), caption="b not changed", check=lambda x: (x * x).sum(), x=x, b=b, y=y)
    return Outcome(
        {"error": changed.error, "gradient, b not changed": x.grad},
        (changed, right),
    )


@experiment(
    "An in-place forward says so with mark_dirty",
    why="Unmarked, b has new values and its old history: its gradient lacks the factor 2, without a word.",
    expected={
        "b, unmarked": [2.0, 4.0, 6.0],
        "gradient, unmarked": [1.0, 1.0, 1.0],
        "b, mark_dirty": [2.0, 4.0, 6.0],
        "gradient, mark_dirty": [2.0, 2.0, 2.0],
        "on a leaf": Says("a leaf Variable that requires grad"),
    },
)
def in_place() -> Outcome:
    measured: dict[str, Any] = {}
    graphs = []
    for say_so, name, differs in (
        (False, "unmarked", "The gradient is wrong: autograd was not told that b is another tensor now."),
        (True, "mark_dirty", ""),
    ):
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        b = x * 1.0
        Double.apply(b, say_so)
        graphs.append(trace(b.sum(), caption=name, check=lambda x: 2 * x.sum(), differs=differs, x=x, b=b))
        measured |= {f"b, {name}": b, f"gradient, {name}": x.grad}
    leaf = torch.tensor([1.0], requires_grad=True)
    measured["on a leaf"] = raised(lambda: Double.apply(leaf, True))
    return Outcome(measured, tuple(graphs))


@experiment(
    "A graph serves one backward",
    why="Saved tensors are freed on the way; retain_graph=True keeps them, and gradients add up.",
    expected={
        "second backward": Says("Trying to backward through the graph a second time"),
        "twice with retain_graph": [4.0, 8.0],
        "a new forward": [2.0, 4.0],
    },
)
def freed() -> Outcome:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = Square.apply(x)
    total = y.sum()
    total.backward()
    second = trace(total, caption="second backward", x=x, y=y)
    x.grad = None
    y = Square.apply(x)
    total = y.sum()
    total.backward(retain_graph=True)
    total.backward()
    twice = x.grad
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = Square.apply(x)
    new = trace(y.sum(), caption="a new forward", check=lambda x: (x * x).sum(), x=x, y=y)
    return Outcome(
        {"second backward": second.error, "twice with retain_graph": twice, "a new forward": x.grad},
        (second, new),
    )


CHAPTER = Chapter("What a Function keeps", (on_ctx, saved, in_place, freed))

"""Chapter 6: second derivatives: right, lost in silence, or refused."""

from collections.abc import Callable

import torch
from torch import Tensor

from qat.gradients import numpy_function
from qat.tour.expected import Says
from qat.tour.experiment import Chapter, Outcome, experiment, raised
from qat.tour.functions import Square, SquareOnce
from qat.tour.graph import Graph
from qat.tour.need import NO_GRAD_FN
from qat.tour.trace import trace

Function = Callable[[Tensor], Tensor]


def _leaf(value: float = 3.0) -> Tensor:
    return torch.tensor([value], requires_grad=True)


def _gradient(function: Function, x: Tensor) -> Tensor:
    return torch.autograd.grad(function(x).sum(), x, create_graph=True)[0]


def _twice(function: Function, right: Function, caption: str = "", differs: str = "") -> tuple[Tensor, Graph]:
    """The second derivative at 3, and the graph of the first one; `right` is the first one in closed form."""
    x = _leaf()
    first = _gradient(function, x)
    graph = trace(first, caption=caption, check=right, differs=differs, x=x)
    return x.grad if x.grad is not None else torch.zeros(1), graph


@experiment(
    "Square has a second derivative",
    why="Its backward, g * 2 * x, is made of differentiable operations: create_graph=True is all it takes.",
    expected={"first": [6.0], "second": [2.0]},
)
def second() -> Outcome:
    x = _leaf()
    first = _gradient(Square.apply, x)
    graph = trace(first, caption="graph of the gradient", check=lambda x: 2 * x, x=x)
    return Outcome({"first": first, "second": x.grad}, (graph,))


@experiment(
    "once_differentiable gives it up",
    why="It returns the gradient without a graph; asked for alone, the second derivative is an error.",
    expected={"first": [6.0], "second": f"RuntimeError: {NO_GRAD_FN}"},
)
def once() -> Outcome:
    x = _leaf()
    first = _gradient(SquareOnce.apply, x)
    graph = trace(first, caption="graph of the gradient", x=x)
    return Outcome({"first": first, "second": graph.error}, (graph,))


@experiment(
    "... and in a sum it drops its terms in silence",
    why="Second derivative of (x^2)^2 + x^3 at 3: 12 x^2 + 6 x = 126; only that of x^3 is left.",
    expected={"right": [126.0], "once_differentiable": [18.0]},
)
def silence() -> Outcome:
    def slope(x: Tensor) -> Tensor:
        return 4 * x**3 + 3 * x**2

    right, whole = _twice(lambda x: Square.apply(Square.apply(x)) + x**3, slope, "right")
    wrong, part = _twice(
        lambda x: SquareOnce.apply(SquareOnce.apply(x)) + x**3,
        slope,
        "once_differentiable",
        "The second derivative is wrong: the branch of (x^2)^2 has left the graph.",
    )
    return Outcome({"right": right, "once_differentiable": wrong}, (whole, part))


@experiment(
    "A refusal is a node that raises",
    why="The gradient depends on its inputs through an identity whose backward raises: never silent.",
    expected={
        "first": [135.0],
        "autograd.grad": Says("has no second derivative"),
        "backward": Says("has no second derivative"),
    },
)
def refused() -> Outcome:
    square = numpy_function(lambda x: x * x, lambda g, y, x: 2 * g * x)
    x = _leaf()
    first = _gradient(lambda x: square(square(x)) + x**3, x)
    by_grad = raised(lambda: torch.autograd.grad(first, x, retain_graph=True))
    graph = trace(first, caption="graph of the gradient", x=x)
    return Outcome({"first": first, "autograd.grad": by_grad, "backward": graph.error}, (graph,))


@experiment(
    "At work: a Hessian-vector product",
    why="Differentiate grad . v once more: H v of sum(x^4), 12 x^2 v, without the matrix H.",
    expected={"gradient": [4.0, 32.0], "H v": [12.0, -48.0]},
)
def hessian_vector() -> Outcome:
    x, v = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, -1.0])
    first = _gradient(lambda x: Square.apply(Square.apply(x)), x)
    graph = trace(first, v, caption="graph of the gradient", check=lambda x: 4 * x**3, x=x)
    return Outcome({"gradient": first, "H v": x.grad}, (graph,))


@experiment(
    "At work: a gradient penalty",
    why="(dD/dx - 1)^2 is trained by w through the gradient; the term that was dropped is half of the truth.",
    expected={"dD/dx": [3.0], "right": [24.0], "once_differentiable": [12.0]},
)
def penalty() -> Outcome:
    slope, right, whole = _penalty(Square.apply, "right", "")
    differs = "The gradient is wrong: x and half of w have left the graph."
    _, wrong, part = _penalty(SquareOnce.apply, "once_differentiable", differs)
    return Outcome({"dD/dx": slope, "right": right, "once_differentiable": wrong}, (whole, part))


def _penalty(square: Function, caption: str, differs: str) -> tuple[Tensor, Tensor | None, Graph]:
    """The slope of D(x) = (w x)^2, the gradient of its penalty for w, and the graph of the penalty."""
    x, w = _leaf(1.5), _leaf(1.0)
    slope = _gradient(lambda x: square(w * x), x)
    graph = trace(
        (slope - 1) ** 2,
        caption=caption,
        check=lambda x, w: (2 * w * w * x - 1) ** 2,
        differs=differs,
        x=x,
        w=w,
        slope=slope,
    )
    return slope, w.grad, graph


CHAPTER = Chapter("Second derivatives", (second, once, silence, refused, hessian_vector, penalty))

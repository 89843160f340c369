"""Second derivatives: correct, lost without an error, or refused."""

from collections.abc import Callable

import torch
from torch import Tensor

from qat.gradients import numpy_function
from qat.tour.errors import error_of
from qat.tour.experiment import Measured
from qat.tour.functions import Square, SquareOnce
from qat.tour.graph import TracedGraph
from qat.tour.trace import leaf, trace

Function = Callable[[Tensor], Tensor]


def _fourth_power_plus_cube(square: Function) -> Function:
    return lambda x: square(square(x)) + x**3


def _gradient(function: Function, x: Tensor) -> Tensor:
    """The gradient of a function at x, with a graph of its own."""
    return torch.autograd.grad(function(x).sum(), x, create_graph=True)[0]


def second() -> Measured:
    x = leaf(3.0)
    first = _gradient(Square.apply, x)
    graph = trace(first, caption="graph of the gradient", check=lambda x: 2 * x, x=x)
    return {"first": first, "second": x.grad}, [graph]


def once() -> Measured:
    x = leaf(3.0)
    first = _gradient(SquareOnce.apply, x)
    graph = trace(first, caption="graph of the gradient", x=x)
    return {"first": first, "second": graph.error}, [graph]


def lost() -> Measured:
    measured, graphs = {}, []
    wrong = "The second derivative is wrong: the branch of (x^2)^2 has left the graph."
    for name, square, differs in ("right", Square, ""), ("once_differentiable", SquareOnce, wrong):
        x = leaf(3.0)
        first = _gradient(_fourth_power_plus_cube(square.apply), x)
        graphs.append(trace(first, caption=name, check=lambda x: 4 * x**3 + 3 * x**2, differs=differs, x=x))
        measured[name] = x.grad
    return measured, graphs


def refused() -> Measured:
    square = numpy_function(lambda x: x * x, lambda g, y, x: 2 * g * x)
    x = leaf(3.0)
    first = _gradient(_fourth_power_plus_cube(square), x)
    by_grad = error_of(lambda: torch.autograd.grad(first, x, retain_graph=True))
    graph = trace(first, caption="graph of the gradient", x=x)
    return {"first": first, "autograd.grad": by_grad, "backward": graph.error}, [graph]


def hessian_vector() -> Measured:
    x, v = leaf(1.0, 2.0), torch.tensor([1.0, -1.0])
    first = _gradient(lambda x: Square.apply(Square.apply(x)), x)
    graph = trace(first, v, caption="graph of the gradient", check=lambda x: 4 * x**3, x=x)
    return {"gradient": first, "H v": x.grad}, [graph]


def penalty() -> Measured:
    slope, right, whole = _penalty(Square.apply, "right", "")
    differs = "The gradient is wrong: x and half of w have left the graph."
    _, wrong, part = _penalty(SquareOnce.apply, "once_differentiable", differs)
    return {"dD/dx": slope, "right": right, "once_differentiable": wrong}, [whole, part]


def _penalty(square: Function, caption: str, differs: str) -> tuple[Tensor, Tensor | None, TracedGraph]:
    """The slope of D(x) = (w x)^2, the gradient of its penalty for w, and the graph of the penalty."""
    x, w = leaf(1.5), leaf(1.0)
    slope = _gradient(lambda x: square(w * x), x)
    check, tensors = lambda x, w: (2 * w * w * x - 1) ** 2, {"x": x, "w": w, "slope": slope}
    graph = trace((slope - 1) ** 2, check=check, caption=caption, differs=differs, **tensors)
    return slope, w.grad, graph

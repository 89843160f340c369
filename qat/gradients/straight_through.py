"""Any function with the gradient of the identity."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g, None


def straight_through(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """A function with the straight-through gradient.

    Forward: `function(x)`, a new tensor of x's shape. Gradient: `1 * g`. Second derivative: that of the
    identity. So a user-defined rounding is one line, `straight_through(x, my_forward)`.

    Args:
        x: any shape, any real dtype.
        function: a tensor -> a new tensor of its shape and dtype; no gradient goes through it.

    Raises:
        ValueError: function is no function, or returns another shape.

    Source: Bengio et al. 2013, "Estimating or propagating gradients through stochastic neurons", section 2.3.
    """
    if not callable(function):
        raise ValueError(f"function must be callable, got {function!r}; torch.round, for example")
    y: Tensor = _StraightThrough.apply(x, function)
    if y.shape != x.shape:
        rule = f"function must keep the shape {tuple(x.shape)}, got {tuple(y.shape)}"
        raise ValueError(f"{rule}; the gradient of the identity has the shape of x")
    return y

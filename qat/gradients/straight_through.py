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
    identity.

    Source: Bengio et al. 2013, "Estimating or propagating gradients through stochastic neurons", section 2.3.
    """
    return _StraightThrough.apply(x, function)

"""Clamping with a gradient that passes on both ends of the interval."""

from typing import Any

import torch
from torch import Tensor


class _Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        y = x.clamp(low, high)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(y == x)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (inside,) = ctx.saved_tensors
        return g * inside, None, None


def clamp(x: Tensor, low: float, high: float) -> Tensor:
    """Clamp to `[low, high]`; the gradient passes inside, ends included.

    Forward: `min(max(x, low), high)`. Gradient: `g` where `low <= x <= high`, else 0. `torch.clamp` gives 0
    on the ends too in current versions, which would cut off the two outermost codes of a grid.

    Shape: any -> the same. NaN stays NaN and gets the gradient 0.
    """
    return _Clamp.apply(x, low, high)

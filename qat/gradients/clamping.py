"""Clamping with a gradient that passes on both ends of the interval."""

from typing import Any

import torch
from torch import Tensor

from qat.gradients.masking import equal, masked


class _Clamp(torch.autograd.Function):
    """Bounds are numbers: one byte an element is kept, or nothing for a frozen input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        y = x.clamp(low, high)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(equal(x, y))
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (inside,) = ctx.saved_tensors
        return masked(g, inside), None, None


class _ClampBetween(torch.autograd.Function):
    """Bounds are tensors, which may learn: one byte an element for each that wants a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        ctx.shapes = (x.shape, low.shape, high.shape)
        raised = torch.maximum(x, low)
        # As torch.clamp: where low > high, high wins everywhere.
        inside, below, above = (low <= x) & (x <= high), (x < low) & (low <= high), raised > high
        masks = zip((inside, below, above), ctx.needs_input_grad, strict=True)
        ctx.save_for_backward(*(mask if needed else None for mask, needed in masks))
        return torch.minimum(raised, high)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(
            None if mask is None else masked(g, mask).sum_to_size(shape)
            for mask, shape in zip(ctx.saved_tensors, ctx.shapes, strict=True)
        )


def clamp(x: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    """Clamp to `[low, high]`; the gradient passes inside, ends included.

    Forward: `min(max(x, low), high)`. Gradient of x: `g` where `low <= x <= high`, else 0; of low, where it
    is a tensor: the sum of `g` where `x < low`; of high: where `x > high`. Second derivative: that of
    whatever follows, times the same masks. `torch.clamp` gives x nothing on the ends in current versions,
    which would cut off the two outermost codes of a grid.

    Args:
        x: any shape, any real dtype. NaN stays NaN, with the gradient 0.
        low, high: numbers, or tensors that broadcast against x and whose gradient has their own shape. They
            are compared in x's dtype. Where a tensor low lies above high, the result is high, to which all
            of the gradient goes.

    Shape: any -> the same (broadcast with tensor bounds).

    Raises:
        ValueError: low and high are numbers, and low is not <= high.
    """
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        bounds = (torch.as_tensor(bound, dtype=x.dtype, device=x.device) for bound in (low, high))
        return _ClampBetween.apply(x, *bounds)
    if not low <= high:
        raise ValueError(f"low must be <= high, got {low!r} and {high!r}; swap them")
    return _Clamp.apply(x, low, high)

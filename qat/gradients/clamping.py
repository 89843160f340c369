"""Clamping with a gradient that passes at both ends of the interval."""

from typing import Any

import torch
from torch import Tensor

from qat.gradients.control import is_number
from qat.gradients.masking import equal, masked


class _Clamp(torch.autograd.Function):
    """For bounds that are numbers. Keeps one byte per element, or nothing if x needs no gradient."""

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
    """For bounds that are tensors. Keeps one byte per element for each input that needs a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        ctx.shapes = (x.shape, low.shape, high.shape)
        raised = torch.maximum(x, low)
        # As torch.clamp: where low > high, the result is high.
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
    """Clamp to `[low, high]`; the gradient passes inside, including the ends.

    Forward: `min(max(x, low), high)`. Gradient of x: `g` where `low <= x <= high`, else 0; of bounds that are
    tensors: the sum of `g` where `x < low`, and where `x > high`. Second derivative: that of the identity,
    where the gradient passes. `torch.clamp` gives x no gradient at the ends in current versions, which would
    exclude the two outermost codes of a grid.

    Args:
        x: any shape, any real dtype. NaN stays NaN, with the gradient 0.
        low, high: numbers, or tensors that broadcast against x; they are compared in x's dtype. Where a
            tensor low lies above high, the result is high, which gets the whole gradient.

    Raises:
        ValueError: low or high is neither a number nor a tensor, or low is not <= high.
    """
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        bounds = (torch.as_tensor(bound, dtype=x.dtype, device=x.device) for bound in (low, high))
        return _ClampBetween.apply(x, *bounds)
    if not is_number(low) or not is_number(high):
        raise ValueError(f"low and high must be numbers or tensors, got {low!r} and {high!r}")
    if not low <= high:
        raise ValueError(f"low must be <= high, got {low!r} and {high!r}; swap them")
    return _Clamp.apply(x, low, high)

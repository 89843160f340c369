"""Clamping with a gradient that passes at both ends of the interval, and outside if this is chosen."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from qat.gradients.control import is_number
from qat.gradients.masking import equal, masked
from qat.gradients.straight_through import straight_through


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
    _check_bounds(low, high, "numbers or tensors")
    return _Clamp.apply(x, low, high)


def clamp_ste(x: Tensor, low: float, high: float) -> Tensor:
    """Clamp to `[low, high]`; the gradient passes everywhere.

    Forward: `min(max(x, low), high)`. Gradient: `1 * g`. Second derivative: that of the identity.

    Args and errors are those of `clamp`, with bounds that are numbers.

    Source: Bengio et al. 2013, "Estimating or propagating gradients through stochastic neurons", section 4.
    """
    _check_bounds(low, high, "numbers")
    return straight_through(x, lambda x: x.clamp(low, high))


class _ClampFading(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.bounds = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        distance = (x - x.clamp(*ctx.bounds)).abs()
        return g * torch.exp(-distance), None, None


def clamp_fading(x: Tensor, low: float, high: float) -> Tensor:
    """Clamp to `[low, high]`; outside, the gradient fades with the distance.

    Forward: `y = min(max(x, low), high)`. Gradient: `exp(-|x - y|) g`. It keeps x until the backward.

    Args and errors are those of `clamp`, with bounds that are numbers.
    """
    _check_bounds(low, high, "numbers")
    return _ClampFading.apply(x, low, high)


def _check_bounds(low: object, high: object, kinds: str) -> None:
    if not is_number(low) or not is_number(high):
        raise ValueError(f"low and high must be {kinds}, got {low!r} and {high!r}")
    if not low <= high:  # type: ignore[operator] # both are numbers
        raise ValueError(f"low must be <= high, got {low!r} and {high!r}; swap them")


# The gradient outside the outer codes of a grid, by name.
OutsideName = Literal["masked", "passed", "fading"]
CLAMPS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "masked": clamp,
    "passed": clamp_ste,
    "fading": clamp_fading,
}

"""The arithmetic of fake-quantizing, forward and backward, without autograd; `fused.py` wraps it."""

import torch
from torch import Tensor

# Comparisons are written as floats, in place: torch's kernels that store bools are several times slower.


def forward(
    x: Tensor, scale: Tensor, low: int, high: int, clamps_first: bool, relu: bool
) -> tuple[Tensor, Tensor]:
    """`clamp(round(x / scale), low, high) * scale` and where its gradient passes.

    Args:
        x: any shape.
        scale: float32, > 0, broadcasts against x.
        low, high: the grid's ends.
        clamps_first: inside means `low <= x / scale <= high`; else the same of `round(x / scale)`.
        relu: x comes through a ReLU first; its gradient passes where x > 0. `low` is then 0.

    Shape: any -> twice the same: the value in x's dtype, never -0.0; inside as bools.
    """
    wide = _wide(x)
    v = wide / scale
    if not clamps_first:
        v.round_()
    code = v.clamp(low, high)
    inside = v.eq_(code)
    if clamps_first:
        code.round_()
    if relu:
        inside = torch.ops.aten.threshold_backward(inside, wide, 0)
    return code.mul_(scale).add_(0.0).to(x.dtype), inside.to(torch.bool)


def value(x: Tensor, scale: Tensor, low: int, high: int) -> Tensor:
    """`clamp(round(x / scale), low, high) * scale` alone. Shape: any -> the same, in x's dtype."""
    return (_wide(x) / scale).round_().clamp_(low, high).mul_(scale).add_(0.0).to(x.dtype)


def learned_backward(
    g: Tensor, x: Tensor, scale: Tensor, low: int, high: int, relu: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of x and of a learned scale (LSQ).

    With v = x / scale: `g` where `low <= v <= high` (and x > 0 after a ReLU), else 0; and the sum of
    `g (round(v) - v)` inside, of `g low` or `g high` outside.

    Args:
        g: the gradient of the value, in x's dtype.
        The others are those of `forward`.

    Shape: that of x, and that of the scale.
    """
    wide = _wide(x)
    v = wide / scale
    clamped = v.clamp(low, high)
    inside = v.eq_(clamped)
    # Outside `clamped` is an end, which is the code: the error is then the code itself.
    error = clamped.round().sub_(clamped.mul_(inside))
    g = g.to(error.dtype)
    share = error.mul_(g).sum_to_size(scale.shape).to(scale.dtype)
    if relu:
        inside = torch.ops.aten.threshold_backward(inside, wide, 0)
    # Chosen, not multiplied: an infinite g outside must not become NaN.
    return torch.where(inside.to(torch.bool), g, 0.0).to(x.dtype), share


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))  # in bfloat16 18 % of 8-bit codes would differ

"""Any scale, rounded to a power of two: dividing by it is a shift."""

import math
from typing import Any

import torch
from torch import Tensor

from qat.quantizers.scale import Scale


class _RoundExponent(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scale: Tensor) -> Tensor:
        mantissa, _ = torch.frexp(scale)  # in [0.5, 1)
        # Exact, unlike exp2(round(log2(scale))); the square root is no float, so that there are no ties.
        return scale / mantissa * torch.where(mantissa < math.sqrt(0.5), 0.5, 1.0)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


def round_exponent(scale: Tensor) -> Tensor:
    """The power of two nearest in the exponent, with the straight-through gradient.

    Forward: `2 ** round(log2(scale))`, exact. Gradient: `1 * g`. Second derivative: that of the identity.

    Args:
        scale: > 0, any shape, normal float32.

    Shape: any -> the same. Source: Jain et al. 2020, "Trained quantization thresholds", section 3.2, which
    rounds the exponent up instead.
    """
    return _RoundExponent.apply(scale)


class PowerOfTwo(Scale):
    """Another scale, rounded to a power of two: `round_exponent(inner(x))`.

    Args:
        inner: any scale; its state and gradient are its own.

    Buffers: those of `inner`, and `frozen`.
    """

    def __init__(self, inner: Scale) -> None:
        super().__init__()
        self.inner = inner
        self.clamps_first = inner.clamps_first
        self.passes_outside = inner.passes_outside
        self.follows = inner.follows

    @property
    def plain(self) -> bool:
        """That of the inner scale."""
        return self.inner.plain

    @property
    def value(self) -> Tensor:
        """The scale as it is stored, rounded, without a gradient. Raises where `inner` stores none."""
        stored = self.inner.value
        assert isinstance(stored, Tensor)
        return round_exponent(stored.detach().abs())

    def start(self, x: Tensor) -> None:
        """Start the inner scale."""
        self.inner.start(x)

    def glance(self, x: Tensor) -> Tensor:
        """What the inner scale needs of `x`."""
        return self.inner.glance(x)

    def observe(self, x: Tensor) -> None:
        """Let the inner scale see a batch."""
        self.inner.observe(x)

    def forward(self, x: Tensor) -> Tensor:
        """The scale for `x`. Shape: any -> the scale's."""
        return round_exponent(self.inner(x))

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        """That of the inner scale."""
        return self.inner.transform(x, scale)

    def zero_point(self, scale: Tensor) -> Tensor | None:
        """That of the inner scale."""
        return self.inner.zero_point(scale)

    def freeze(self) -> None:
        """Freeze the inner scale."""
        super().freeze()
        self.inner.freeze()

    def unfreeze(self) -> None:
        """Undo `freeze`."""
        super().unfreeze()
        self.inner.unfreeze()

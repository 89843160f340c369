"""A scale that is rounded to a power of two, so that dividing by it is a shift."""

import math

import torch
from torch import Tensor

from qat.gradients import straight_through
from qat.quantizers.grid import IntGrid
from qat.quantizers.scale import Scale, shown


def round_exponent(scale: Tensor) -> Tensor:
    """The power of two nearest in the exponent, with the straight-through gradient.

    Forward: `2 ** round(log2(scale))`, exact, for scale > 0, normal float32, any shape. Gradient: `1 * g`.
    Second derivative: that of the identity.

    Source: Jain et al. 2020, "Trained quantization thresholds", section 3.2, which rounds the exponent up.
    """

    def nearest(scale: Tensor) -> Tensor:
        mantissa, _ = torch.frexp(scale)  # in [0.5, 1)
        # Exact, unlike exp2(round(log2(scale))). No float is the square root of 0.5, so there are no ties.
        return scale / mantissa * torch.where(mantissa < math.sqrt(0.5), 0.5, torch.ones_like(scale))

    return straight_through(scale, nearest)


class PowerOfTwo(Scale):
    """Another scale, rounded to a power of two: `round_exponent(inner(x))`. All state is that of `inner`."""

    def __init__(self, inner: Scale) -> None:
        if not isinstance(inner, Scale) or isinstance(inner, PowerOfTwo):
            rule = f"inner must be a Scale that is not rounded yet, got {shown(inner)}"
            raise ValueError(f"{rule}; construct one, such as LearnedScale(7)")
        super().__init__(inner.high, inner.axis)
        self.inner = inner
        self.clamps_first = inner.clamps_first
        self.is_dynamic = inner.is_dynamic
        self.is_averaged = inner.is_averaged
        self.is_fusible = inner.is_fusible
        self.is_unsigned = inner.is_unsigned
        self.kind = f"PowerOfTwo({inner.kind})"

    def forward(self, x: Tensor) -> Tensor:
        return round_exponent(self.inner(x))

    @property
    def value(self) -> Tensor:
        """The stored scale, rounded, without a gradient."""
        stored = self.inner.value
        assert isinstance(stored, Tensor)
        return round_exponent(stored.detach().abs())

    def measure(self, x: Tensor) -> Tensor:
        return self.inner.measure(x)

    def initialize(self, x: Tensor) -> None:
        self.inner.initialize(x)
        self.unset = None

    def fit(self, grid: IntGrid) -> None:
        self.inner.fit(grid)
        self.take(grid)

    def take(self, grid: IntGrid) -> None:
        self.inner.take(grid)
        super().take(grid)

    def subsample(self, x: Tensor) -> Tensor:
        return self.inner.subsample(x)

    def restart(self) -> None:
        self.inner.restart()

    def observe(self, x: Tensor) -> None:
        self.inner.observe(x)

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.inner.transform(x, scale)

    def zero_point(self, scale: Tensor) -> Tensor | None:
        return self.inner.zero_point(scale)

    def freeze(self) -> None:
        super().freeze()
        self.inner.freeze()

    def unfreeze(self) -> None:
        super().unfreeze()
        self.inner.unfreeze()

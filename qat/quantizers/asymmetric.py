"""A scale with a zero point: an unsigned grid over a range with two different ends."""

import torch
from torch import Tensor

from qat.quantizers.observers import extremes
from qat.quantizers.scale import SMALLEST, Scale, largest_of_ranks

SHARE = 0.1  # of the newest batch in the moving averages
# Where a range like [-1, 1] puts its ends on ties, float32's error would decide whether the outermost codes
# are ever used. With a scale that is smaller by this share they are.
TINY = 2**-21


class AsymmetricScale(Scale):
    """`(highest - lowest) / high` on the unsigned grid `0..high`, where 0.0 has a code of its own.

    The zero point is `z = clamp(round(-lowest / scale), 0, high)`, a code is
    `clamp(round(x / scale) + z, 0, high)` and its value `(code - z) * scale`, so that 0.0 stays 0.0. Lowest
    and highest are moving averages of the batches' ends, widened to contain 0: the first sets them, each
    later one moves them, `0.9 old + 0.1 new`; across ranks the widest range counts.

    Gradient of x: `g` where `0 <= round(x / scale) + z <= high`, else 0 (as
    `torch.fake_quantize_per_tensor_affine`).

    Args:
        high: the largest code of the grid.

    Buffers: `lowest` <= 0 and `highest` >= 0, float32 `()`; `batches`, int64; `frozen`, bool.

    Source: Jacob et al. 2018, "Quantization and training of neural networks", sections 2.1 and 3.1.
    """

    lowest: Tensor
    highest: Tensor
    batches: Tensor

    def __init__(self, high: int) -> None:
        super().__init__()
        self.high = high
        self.register_buffer("lowest", torch.zeros(()))
        self.register_buffer("highest", torch.ones(()))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    @property
    def value(self) -> Tensor:
        """The scale as it is stored."""
        scale = ((self.highest - self.lowest) / self.high).clamp(min=SMALLEST)
        from_tie = (-self.lowest / scale).frac().sub(0.5).abs()
        return torch.where(from_tie < self.high * TINY, scale * (1 - TINY), scale)

    def measure(self, x: Tensor) -> Tensor:
        """`[-lowest, highest]` of x and 0, both >= 0; NaN where x is empty. Shape: any -> `(2,)`."""
        if x.numel() == 0:
            return torch.full((2,), torch.nan, device=self.lowest.device)
        lowest, highest = torch.aminmax(x)
        return torch.stack([-lowest, highest]).float().clamp(min=0)

    def glance(self, x: Tensor) -> Tensor:
        """The smallest and the largest element of `x`. Shape: any -> `(2,)`."""
        return extremes(x)

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Give the range its first value; the first batch that is observed will still set it anew."""
        below, above = self.measure(x)
        finite = below.isfinite() & above.isfinite()
        self.lowest.copy_(torch.where(finite, -below, self.lowest))
        self.highest.copy_(torch.where(finite, above, self.highest))

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Move the range by one batch."""
        ends = self.measure(x)
        below, above = largest_of_ranks(torch.where(ends.isfinite().all(), ends, torch.nan), missing=-1.0)
        usable = (below >= 0) & ~self.frozen
        share = torch.where(self.batches == 0, 1.0, SHARE)
        for stored, new in ((self.lowest, -below), (self.highest, above)):
            stored.copy_(torch.where(usable, (1 - share) * stored + share * new, stored))
        self.batches.add_(usable)

    def forward(self, x: Tensor) -> Tensor:
        """The scale for `x`. Shape: any -> `()`."""
        return self.value

    def zero_point(self, scale: Tensor) -> Tensor:
        """The code of 0.0. Shape: `()`."""
        return (-self.lowest / scale).round().clamp(0, self.high)

"""A scale with a zero point: an unsigned grid over a range with two different ends."""

import torch
from torch import Tensor

from qat.quantizers.observers import AVERAGING_CONSTANT, min_max, update_average
from qat.quantizers.scale import SMALLEST, Scale, max_over_ranks, no_batches

# If the ends of the range lie on ties, as those of [-1, 1] do, rounding errors of float32 decide whether the
# outermost codes are ever used. With a scale that is smaller by this fraction they are.
TINY = 2**-21


class AsymmetricScale(Scale):
    """`(maximum - minimum) / high` on the unsigned grid `0..high`, with a zero point.

    The zero point is `z = clamp(round(-minimum / scale), 0, high)`, a code is `clamp(round(x / scale) + z, 0,
    high)` and its value `(code - z) * scale`, so that 0.0 stays 0.0. Gradient of x: `g` where `0 <= round(x /
    scale) + z <= high`, else 0 (as `torch.fake_quantize_per_tensor_affine`).

    Minimum and maximum are those of the batch and 0, the widest range of all ranks. The first batch sets
    them, and each later batch updates them: `0.9 old + 0.1 new`. A batch of zeros, or one that is not finite,
    changes nothing and does not count.

    Buffers: `range`, float32 `(2,)`: minimum <= 0 and maximum >= 0; `batches`, float32 `()`: how many were
    observed.

    Source: Jacob et al. 2018, "Quantization and training of neural networks", sections 2.1 and 3.1.
    """

    statistic = "range"
    is_averaged = True
    is_unsigned = True
    range: Tensor
    batches: Tensor

    def __init__(self, high: int) -> None:
        super().__init__(high)
        self.register_buffer("range", torch.tensor([0.0, 1.0], dtype=torch.float32))
        self.register_buffer("batches", no_batches())

    @property
    def value(self) -> Tensor:
        minimum, maximum = self.range
        scale = ((maximum - minimum) / self.high).clamp(min=SMALLEST)
        from_tie = (-minimum / scale).frac().sub(0.5).abs()
        return torch.where(from_tie < self.high * TINY, scale * (1 - TINY), scale)

    def measure(self, x: Tensor) -> Tensor:
        """Minimum and maximum of x and 0; NaN if both are 0 or one is infinite. Shape: any -> `(2,)`."""
        if x.numel() == 0:
            return torch.full_like(self.range, torch.nan)
        minimum, maximum = min_max(x).float()
        ends = torch.stack([minimum.clamp(max=0), maximum.clamp(min=0)])
        distance = ends[1] - ends[0]
        return torch.where((distance >= SMALLEST) & distance.isfinite(), ends, torch.nan)

    def subsample(self, x: Tensor) -> Tensor:
        return min_max(x)

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        minimum, maximum = self.measure(x)
        below, above = max_over_ranks(torch.stack([-minimum, maximum]), missing=-1.0)
        new = torch.stack([-below, above])
        update_average(self.range, self.batches, new, above >= 0, AVERAGING_CONSTANT)

    def zero_point(self, scale: Tensor) -> Tensor:
        return (-self.range[0] / scale).round().clamp(0, self.high)

"""Activations clipped at a learned level."""

from typing import Any

import torch
from torch import Tensor, nn

from qat.gradients.masking import masked
from qat.quantizers.observers import min_max
from qat.quantizers.scale import SMALLEST, Scale, above_floor, no_batches, positive, set_by_first_batch


class _Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, clip: Tensor, limit: Tensor) -> Tensor:
        ctx.save_for_backward((x >= 0) & (x < limit), x >= limit)
        ctx.form = clip.shape, clip.dtype
        return torch.minimum(x.clamp(min=0), limit)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        inside, above = ctx.saved_tensors
        shape, dtype = ctx.form
        return masked(g, inside), masked(g, above).sum_to_size(shape).to(dtype), None


class PactScale(Scale):
    """`clip / high`, with a learned clip, for activations that are never negative.

    Forward: x is clipped to `[0, |clip|]`, and the scale is `|clip| / high`. Gradient of the clip: the sum of
    `g` where `x >= clip` (unlike that of a learned scale, it omits the rounding error); of x: `g` where `0 <=
    x < clip`, times the rounding's factor, else 0. While the scale is frozen, the clip gets no gradient.

    The first observed batch sets the clip to its maximum, the largest of all ranks (in the paper the clip
    starts at 10). The paper's weight decay on the clip is left to the optimizer.

    Parameters: `clip`, float32 `()`. Buffers: `batches`, float32 `()`: how many were observed.

    Source: Choi et al. 2018, "PACT: parameterized clipping activation", section 3, equations 2 and 3.
    """

    statistic = "clip"
    is_unsigned = True
    batches: Tensor

    def __init__(self, high: int) -> None:
        super().__init__(high)
        self.clip = nn.Parameter(torch.ones((), dtype=torch.float32))
        self.register_buffer("batches", no_batches())

    @property
    def value(self) -> Tensor:
        return (positive(self.clip.detach()) / self.high).clamp(min=SMALLEST)

    def measure(self, x: Tensor) -> Tensor:
        if x.numel() == 0:
            return torch.full_like(self.clip, torch.nan)
        return above_floor(x.max().float())

    def subsample(self, x: Tensor) -> Tensor:
        return min_max(x)

    def observe(self, x: Tensor) -> None:
        set_by_first_batch(self.clip, self.batches, self.measure(x))

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        """x clipped; here the clip gets its gradient."""
        clip = positive(self.clip.detach() if self.frozen else self.clip)
        # If the scale was rounded to a power of two, x is clipped at the end of the rounded grid.
        limit = torch.where(scale == self.value, clip.detach(), scale * self.high)
        return _Clip.apply(x, clip, limit)

"""Activations clipped at a learned level."""

from typing import Any

import torch
from torch import Tensor, nn

from qat.gradients.masking import masked
from qat.quantizers.observers import extremes
from qat.quantizers.scale import SMALLEST, Scale, largest_of_ranks, positive


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
        share = masked(g, above).sum_to_size(shape).to(dtype)
        return masked(g, inside), share, None


class PactScale(Scale):
    """`clip / high`, with a learned clip, for activations that are never negative.

    Forward: x is clipped to `[0, |clip|]`, the scale is `|clip| / high`. Gradient of the clip: the sum of `g`
    where `x >= clip`, without the error of the rounding, which a learned scale counts; of x: `g` where
    `0 <= x < clip`, times the rounding's factor, else 0. While frozen the clip gets no gradient.

    The first batch observed sets the clip to its maximum (the paper starts from a constant, 10); across ranks
    the largest counts. The paper adds weight decay on the clip; that is the optimizer's to do.

    Args:
        high: the largest code of the unsigned grid.

    Parameters: `clip`, float32 `()`, whatever the model's dtype.
    Buffers: `batches`, int64, how many were observed; `frozen`, bool.

    Source: Choi et al. 2018, "PACT: parameterized clipping activation", section 3, equations 2 and 3.
    """

    batches: Tensor

    def __init__(self, high: int) -> None:
        super().__init__()
        self.high = high
        self.clip = nn.Parameter(torch.ones(()))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    @property
    def value(self) -> Tensor:
        """The scale as it is stored, without a gradient."""
        return (positive(self.clip.detach()) / self.high).clamp(min=SMALLEST)

    def measure(self, x: Tensor) -> Tensor:
        """The clip that fits `x` alone; NaN where x is empty."""
        if x.numel() == 0:
            return torch.full_like(self.clip, torch.nan)
        return x.max().float().clamp(min=SMALLEST * self.high)

    def glance(self, x: Tensor) -> Tensor:
        """The smallest and the largest element of `x`. Shape: any -> `(2,)`."""
        return extremes(x)

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Give the clip its first value; the first batch that is observed will still set it anew."""
        new = self.measure(x)
        self.clip.copy_(torch.where(new.isfinite(), new, self.clip))

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Set the clip by the first batch; count the later ones."""
        new = largest_of_ranks(self.measure(x))
        usable = (new > SMALLEST * self.high) & ~self.frozen  # all zero: a later batch will say more
        # Through .data, as in `LearnedScale`.
        self.clip.data.copy_(torch.where(usable & (self.batches == 0), new, self.clip))
        self.batches.add_(usable)

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        """x clipped; here the clip gets its gradient. Shape: any -> the same."""
        clip = positive(torch.where(self.frozen, self.clip.detach(), self.clip))
        # A scale that was rounded to a power of two moves the end of the grid, and the clip with it.
        limit = torch.where(scale == self.value, clip.detach(), scale * self.high)
        return _Clip.apply(x, clip, limit)

    def forward(self, x: Tensor) -> Tensor:
        """The scale for `x`, without a gradient. Shape: any -> `()`."""
        return self.value

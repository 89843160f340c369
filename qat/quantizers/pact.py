"""Activations clipped at a learned level."""

from typing import Any

import torch
from torch import Tensor, nn

from qat.gradients.masking import masked
from qat.quantizers.observers import min_max
from qat.quantizers.scale import SMALLEST, Scale, max_over_ranks, positive, set_by_first_batch


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

    Forward: x is clipped to `[0, |clip|]`, the scale is `|clip| / high`. Gradient of the clip: the sum of `g`
    where `x >= clip`, without the error of the rounding, which a learned scale counts; of x: `g` where
    `0 <= x < clip`, times the rounding's factor, else 0. While frozen the clip gets no gradient.

    The first observed batch sets the clip to its maximum (the paper starts from a constant, 10). The largest
    of all ranks counts. The paper's weight decay on the clip is left to the optimizer.

    Args:
        high: the largest code of the unsigned grid.

    Parameters: `clip`, float32 `()`, whatever the model's dtype.
    Buffers: `batches`, int64: how many were observed.

    Source: Choi et al. 2018, "PACT: parameterized clipping activation", section 3, equations 2 and 3.
    """

    statistic = "clip"
    batches: Tensor

    def __init__(self, high: int) -> None:
        super().__init__()
        self.high = high
        self.clip = nn.Parameter(torch.ones(()))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    @property
    def value(self) -> Tensor:
        """The stored scale, without a gradient."""
        return (positive(self.clip.detach()) / self.high).clamp(min=SMALLEST)

    def measure(self, x: Tensor) -> Tensor:
        """The clip for `x` alone; not finite if x is empty or not finite."""
        if x.numel() == 0:
            return torch.full_like(self.clip, torch.nan)
        return x.max().float().clamp(min=SMALLEST * self.high)

    def subsample(self, x: Tensor) -> Tensor:
        return min_max(x)

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Let the first batch set the clip; count the later ones."""
        new = max_over_ranks(self.measure(x))
        # A batch of zeros says nothing; a later one will.
        set_by_first_batch(self.clip, self.batches, new, new > SMALLEST * self.high)

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        """x clipped; here the clip gets its gradient. Shape: any -> the same."""
        clip = positive(self.clip.detach() if self.frozen else self.clip)
        # A scale that was rounded to a power of two moves the end of the grid, and the clip with it.
        limit = torch.where(scale == self.value, clip.detach(), scale * self.high)
        return _Clip.apply(x, clip, limit)

    def forward(self, x: Tensor) -> Tensor:
        return self.value

"""A scale that is trained."""

import math

import torch
from torch import Tensor, nn

from qat.gradients import scale_gradient
from qat.quantizers.observers import evenly_spaced, mean_magnitude
from qat.quantizers.scale import SMALLEST, Scale, max_over_ranks, positive, set_by_first_batch


class LearnedScale(Scale):
    """A scale with its own gradient (learned step size quantization).

    Forward: `|value|`, at least 1.2e-38, so that no optimizer step reverses the grid. Gradient of the scale,
    before `value` gets it: the sum of `g (code - v r'(v))` where `low <= v <= high`, v = x / scale, and of
    `g code` elsewhere, times `1 / sqrt(n high)`; r' is the rounding's chosen derivative and n the number of
    elements that share one scale, over the batch. Gradient of x: `g r'(v)` where `low <= v <= high`, else 0.
    Second derivative: refused. While the scale is frozen `value` gets no gradient.

    The first observed batch sets `value` to `2 mean |x| / sqrt(high)`; after that the optimizer moves it. The
    largest of all ranks counts. A channel of zeros, whose codes are 0 at any scale, starts at the mean of the
    other channels, so that its weights find a grid of ordinary size when they begin to move; on the grid {-1,
    +1}, which has no 0, all of its weights are plus that scale. A tensor of zeros sets nothing; a later batch
    will.

    This start is made for few bits: with `high` = 127 a normal weight begins on about 49 of the 255 codes, a
    uniform one on 23, and training widens that slowly. At 8 bits an observed scale uses all of them.

    Args:
        high: the largest code of the grid.
        shape: of the scale: `()`, or `(O, 1, 1, 1)` for a convolution's weight.
        axis: the channel axis that has its own scales; None: one scale for the tensor.

    Parameters: `value`, float32, whatever the model's dtype.
    Buffers: `batches`, int64: how many were observed.

    Source: Esser et al. 2020, "Learned step size quantization", sections 2.1 and 2.2.
    """

    clamps_first = True
    batches: Tensor

    def __init__(self, high: int, shape: tuple[int, ...] = (), axis: int | None = None) -> None:
        super().__init__()
        self.high = high
        self.axis = axis
        self.value = nn.Parameter(torch.ones(shape))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def measure(self, x: Tensor) -> Tensor:
        """The start for `x` alone; not finite if x is empty or not finite."""
        if x.numel() == 0:
            return torch.full_like(self.value, torch.nan)
        own = 2 * mean_magnitude(x, self.axis, self.high) / math.sqrt(self.high)
        alive = (own > 0) & own.isfinite()
        others = torch.where(alive, own, 0.0).sum() / alive.sum()
        return torch.where((own == 0) & alive.any(), others, own).clamp(min=SMALLEST)

    def subsample(self, x: Tensor) -> Tensor:
        return evenly_spaced(x) if self.axis is None else x

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Let the first batch set the scale; count the later ones."""
        new = max_over_ranks(self.measure(x))
        set_by_first_batch(self.value, self.batches, new, new > SMALLEST)

    def forward(self, x: Tensor) -> Tensor:
        value = self.value.detach() if self.frozen else self.value
        n = max(x.numel() // value.numel(), 1)
        return scale_gradient(positive(value), 1 / math.sqrt(n * self.high))

    def extra_repr(self) -> str:
        return f"shape={tuple(self.value.shape)}, axis={self.axis}"

"""A scale that is trained."""

import math

import torch
from torch import Tensor, nn

from qat.gradients import scale_gradient
from qat.quantizers.observers import mean_magnitude, spaced
from qat.quantizers.scale import SMALLEST, Scale, largest_of_ranks, positive


class LearnedScale(Scale):
    """A scale with a gradient of its own (learned step size quantization).

    Forward: `|value|`, at least 1.2e-38, so that no optimizer step turns the grid over. Gradient of the
    scale, before `value` gets it: the sum of `g (code - v r'(v))` where `low <= v <= high`, v = x / scale, of
    `g code` elsewhere, times `1 / sqrt(n high)`; r' is the rounding's chosen derivative and n the number of
    elements that share one scale, the batch included. Gradient of x: `g r'(v)` where `low <= v <= high`,
    else 0. Second derivative: refused. While frozen `value` gets none.

    The first batch observed sets `value` to `2 mean |x| / sqrt(high)`; from then on the optimizer moves it.
    Across ranks the largest start counts. A channel of zeros, whose codes are 0 at any scale, starts as the
    mean of the other channels, so that its weights find a grid of a usual size when they begin to move; on
    the grid {-1, +1}, which has no 0, its weights are all plus that scale. A tensor of zeros sets nothing: a
    later batch will.

    The start is made for few bits: with `high` = 127 a normal weight begins on about 49 of the 255 codes, a
    uniform one on 23, and training widens that slowly; at 8 bits an observed scale uses all of them.

    Args:
        high: the largest code of the grid.
        shape: of the scale: `()`, or `(O, 1, 1, 1)` for a convolution's weight.
        axis: the channel axis that has its own scales; None: one scale for the tensor.

    Parameters: `value`, float32, whatever the model's dtype.
    Buffers: `batches`, int64, how many were observed; `frozen`, bool.

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
        """The start that fits `x` alone; NaN where x is empty."""
        if x.numel() == 0:
            return torch.full_like(self.value, torch.nan)
        own = 2 * mean_magnitude(x, self.axis, self.high) / math.sqrt(self.high)
        alive = (own > 0) & own.isfinite()
        others = torch.where(alive, own, 0.0).sum() / alive.sum()
        return torch.where((own == 0) & alive.any(), others, own).clamp(min=SMALLEST)

    def glance(self, x: Tensor) -> Tensor:
        """Evenly spaced elements of `x`. Shape: any -> `(n,)`, or with an axis the same."""
        return spaced(x) if self.axis is None else x

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Give the scale its first value; the first batch that is observed will still set it anew."""
        new = self.measure(x)
        self.value.copy_(torch.where(new.isfinite(), new, self.value))

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Set the scale by the first batch; count the later ones."""
        new = largest_of_ranks(self.measure(x))
        usable = (new > SMALLEST) & ~self.frozen
        # Through .data, for the version must not change: the second pass of a checkpointed block writes the
        # value that is there, while the backward waits for the parameter of another pass.
        self.value.data.copy_(torch.where(usable & (self.batches == 0), new, self.value))
        self.batches.add_(usable.any())

    def forward(self, x: Tensor) -> Tensor:
        """The scale for `x`. Shape: any -> the scale's."""
        value = torch.where(self.frozen, self.value.detach(), self.value)
        n = max(x.numel() // self.value.numel(), 1)
        return scale_gradient(positive(value), 1 / math.sqrt(n * self.high))

    def extra_repr(self) -> str:
        return f"shape={tuple(self.value.shape)}, axis={self.axis}"

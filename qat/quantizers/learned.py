"""A scale that is trained."""

import math

import torch
from torch import Tensor, distributed, nn

from qat.gradients import scale_gradient
from qat.quantizers.observers import evenly_spaced, mean_absolute
from qat.quantizers.scale import (
    SMALLEST,
    Scale,
    above_floor,
    check_measured,
    check_shape,
    no_batches,
    positive,
    set_by_first_batch,
)


class LearnedScale(Scale):
    """A scale with its own gradient (learned step size quantization).

    Forward: `|value|`, at least 1.2e-38, so that no optimizer step reverses the grid. Gradient of `value`,
    with v = x / scale: `1 / sqrt(n high)` times the sum of `g (code - v r'(v))` where `low <= v <= high` and
    of `g code` elsewhere; r' is the rounding's chosen derivative and n the number of elements that share one
    scale, over the batches of all ranks: with gradients that are averaged over ranks, as DDP does, it is that
    of the global batch. Gradient of x: `g r'(v)` where `low <= v <= high`, else 0. Second derivative:
    refused. While the scale is frozen, `value` gets no gradient.

    The first observed batch sets `value` to `2 mean |x| / (step sqrt(high))`, the largest of all ranks; after
    that the optimizer moves it. A channel of zeros starts at the mean of the other channels, so that its
    weights find a grid of ordinary size when they begin to move. (Its codes are 0 at any scale, but 1 on a
    midrise grid.) A tensor of zeros sets nothing; a later batch will.

    This start suits few bits: with `high` = 127 a normal weight begins on about 49 of the 255 codes and a
    uniform one on 23, and training uses more of them only slowly. At 8 bits an observed scale uses all.

    Args:
        high, axis: as for `Scale`.
        step: the distance between neighbouring codes, 2 on a midrise grid.
        shape: of the scale: `()`, or `(O, 1, 1, 1)` for a convolution's weight.
        of_weight: whether x is a weight, of which each rank has all elements.

    Parameters: `value`, float32. Buffers: `batches`, float32, of the same shape: how many were observed.

    Source: Esser et al. 2020, "Learned step size quantization", sections 2.1 and 2.2.
    """

    clamps_first = True
    is_fusible = True
    batches: Tensor

    def __init__(
        self,
        high: int,
        shape: tuple[int, ...] = (),
        axis: int | None = None,
        of_weight: bool = False,
        step: int = 1,
    ) -> None:
        super().__init__(high, axis)
        check_shape(shape, axis)
        self.step = step
        self.of_weight = of_weight
        self.value = nn.Parameter(torch.ones(shape, dtype=torch.float32))
        self.register_buffer("batches", no_batches(shape))

    def measure(self, x: Tensor) -> Tensor:
        if x.numel() == 0:
            return torch.full_like(self.value, torch.nan)
        own = 2 * mean_absolute(x, self.axis) / (self.step * math.sqrt(self.high))
        alive = (own >= SMALLEST) & own.isfinite()
        others = torch.where(alive, own, 0.0).sum() / alive.sum()
        return above_floor(torch.where((own < SMALLEST) & alive.any(), others, own))

    def subsample(self, x: Tensor) -> Tensor:
        return evenly_spaced(x) if self.axis is None else x

    def observe(self, x: Tensor) -> None:
        new = self.measure(x)
        check_measured(self, new)
        set_by_first_batch(self.value, self.batches, new)

    def forward(self, x: Tensor) -> Tensor:
        value = self.value.detach() if self.frozen else self.value
        n = max(x.numel() // value.numel(), 1)
        if not self.of_weight and distributed.is_available() and distributed.is_initialized():
            n *= distributed.get_world_size()
        return scale_gradient(positive(value), 1 / math.sqrt(n * self.high))

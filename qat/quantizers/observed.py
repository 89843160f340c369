"""A scale that is measured on the data."""

import torch
from torch import Tensor

from qat.names import unknown_name
from qat.quantizers.observers import OBSERVERS, ObserverName
from qat.quantizers.scale import SMALLEST, Scale, largest_of_ranks


class ObservedScale(Scale):
    """`statistic / high`, with the statistic observed per tensor or per channel.

    `ema` (activations): the first observed batch sets the scale, each later one moves it,
    `0.9 old + 0.1 new`; so do `percentile_ema` and `mse_ema`. `max` (weights): the scale follows the tensor
    as it is now, in every mode, until it is frozen; so do `percentile`, `mse` and `mean`.

    Args:
        high: the largest code of the grid.
        observer: a name in `OBSERVERS`.
        shape: of the scale: `()`, or `(O, 1, 1, 1)` for a convolution's weight.
        axis: the channel axis that has its own scales; None: one scale for the tensor.

    Raises:
        ValueError: the observer is unknown.

    Buffers: `value`, float32, > 0, whatever the model's dtype; `batches`, int64, how many were observed;
        `frozen`, bool.
    """

    value: Tensor
    batches: Tensor

    def __init__(
        self, high: int, observer: ObserverName, shape: tuple[int, ...] = (), axis: int | None = None
    ) -> None:
        super().__init__()
        if observer not in OBSERVERS:
            raise unknown_name("observer", observer, OBSERVERS)
        self.high = high
        self.observer = OBSERVERS[observer]
        self.passes_outside = self.observer.passes_outside
        self.follows = self.observer.share is None
        self.axis = axis
        self.register_buffer("value", torch.ones(shape))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def measure(self, x: Tensor) -> Tensor:
        """The scale that fits `x` alone; NaN where x is empty."""
        if x.numel() == 0:
            return torch.full_like(self.value, torch.nan)
        # NaN and infinity stay what they are, for the caller to see.
        return (self.observer.measure(x, self.axis, self.high) / self.high).clamp(min=SMALLEST)

    def glance(self, x: Tensor) -> Tensor:
        """What the observer needs of `x`. Shape: any -> `(n,)`, or with an axis the same."""
        return self.observer.glance(x) if self.axis is None else x

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Give the scale its first value; the first batch that is observed will still set it anew."""
        new = self.measure(x)
        self.value.copy_(torch.where(new.isfinite(), new, self.value))

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Move the scale by one batch; across ranks the largest counts, so that all of them agree."""
        new = self.measure(x)
        # Ranks have the same weights, but not the same batches.
        follows = self.observer.share is None
        new = torch.where(new.isfinite(), new, 0.0) if follows else largest_of_ranks(new)
        usable = (new > 0) & ~self.frozen
        if self.observer.share is not None:
            moved = (1 - self.observer.share) * self.value + self.observer.share * new
            new = torch.where(self.batches == 0, new, moved)
        self.value.copy_(torch.where(usable, new, self.value))
        self.batches.add_(usable.all())

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """The scale for `x`. Shape: any -> the scale's."""
        if self.follows and not self.training:
            new = self.measure(x)
            return torch.where(new.isfinite() & ~self.frozen, new, self.value)
        return self.value

    def extra_repr(self) -> str:
        return f"shape={tuple(self.value.shape)}, axis={self.axis}"

"""A scale that is measured on the data."""

from collections.abc import Callable

import torch
from torch import Tensor, distributed, nn

from qat.names import unknown_name
from qat.quantizers.observers import OBSERVERS, ObserverName

# Below this a float32 is no longer normal. It is a floor for all-zero channels, not a range: a channel whose
# largest magnitude is 1e-30 still gets its own scale.
SMALLEST = torch.finfo(torch.float32).tiny


class ObservedScale(nn.Module):
    """`statistic / high`, with the statistic observed per tensor or per channel.

    `ema` (activations): the first observed batch sets the scale, each later one moves it,
    `0.9 old + 0.1 new`. `max` (weights): the scale follows the tensor as it is now, in every mode.

    Args:
        high: the largest code of the grid.
        observer: `max` or `ema`.
        shape: of the scale: `()`, or `(O, 1, 1, 1)` for a convolution's weight.
        axis: the channel axis that has its own scales; None: one scale for the tensor.

    Raises:
        ValueError: the observer is unknown.

    Buffers: `value`, float32, > 0, whatever the model's dtype; `batches`, int64, how many were observed.
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
        self.axis = axis
        self.register_buffer("value", torch.ones(shape))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def measure(self, x: Tensor) -> Tensor:
        """The scale that fits `x` alone."""
        return (self.observer.measure(x, self.axis) / self.high).clamp(min=SMALLEST)

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Give the scale its first value; the first batch that is observed will still set it anew."""
        self.value.copy_(self.measure(x))

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Move the scale by one batch; across ranks the largest counts, so that all of them agree."""
        new = self.measure(x)
        if self.observer.share is not None:
            if distributed.is_available() and distributed.is_initialized():
                distributed.all_reduce(new, distributed.ReduceOp.MAX)
            moved = (1 - self.observer.share) * self.value + self.observer.share * new
            new = torch.where(self.batches == 0, new, moved)
        self.value.copy_(new)
        self.batches.add_(1)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """The scale for `x`. Shape: any -> the scale's."""
        if self.observer.share is None and not self.training:
            return self.measure(x)
        return self.value

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "ObservedScale":
        before = self.value
        super()._apply(fn, recurse)
        if self.value.dtype != torch.float32:  # half() and double() are for weights and activations
            self.value = before.to(self.value.device)
        return self

    def extra_repr(self) -> str:
        return f"shape={tuple(self.value.shape)}, axis={self.axis}"

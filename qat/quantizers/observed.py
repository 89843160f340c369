"""A scale that is measured on the data."""

import torch
from torch import Tensor

from qat.names import unknown_name
from qat.quantizers.observers import OBSERVERS, Observer, ObserverName, update_average
from qat.quantizers.scale import (
    SMALLEST,
    Scale,
    above_floor,
    check_measured,
    check_shape,
    max_over_ranks,
    no_batches,
)


class ObservedScale(Scale):
    """`statistic / high`, with a statistic that is observed per tensor or per channel.

    Activations: `ema`, `percentile_ema` and `mse_ema` are moving averages. The first observed batch sets the
    scale, and each later batch updates it: `0.9 old + 0.1 new`, new being the largest of all ranks. A batch
    of zeros, or one that is not finite, changes nothing and does not count. Weights: with `max`, `mean`,
    `percentile`, `mse` and `mse_power_of_two` the scale is measured on the current tensor in every mode,
    until it is frozen; that of zeros is 1.2e-38.

    Args:
        high, axis: as for `Scale`.
        observer: a name in `OBSERVERS`, or an `Observer` with a user-defined function.
        shape: of the scale: `()`, or `(O, 1, 1, 1)` for a convolution's weight.
        step: the distance between neighbouring codes, 2 on a midrise grid.

    Raises:
        ValueError: an unknown observer; a shape without channels at the axis; in `observe`, a tensor with
            other channels, or an observer that returns no tensor of that shape.

    Buffers: `value`, float32, > 0; `batches`, float32, of the same shape: how many were observed.
    """

    is_fusible = True
    value: Tensor
    batches: Tensor

    def __init__(
        self,
        high: int,
        observer: ObserverName | Observer,
        shape: tuple[int, ...] = (),
        axis: int | None = None,
        step: int = 1,
    ) -> None:
        super().__init__(high, axis)
        self.step = step
        check_shape(shape, axis)
        self.observer = _found(observer)
        self.is_dynamic = self.observer.averaging_constant is None
        self.is_averaged = not self.is_dynamic
        self.register_buffer("value", torch.ones(shape, dtype=torch.float32))
        self.register_buffer("batches", no_batches(shape))

    def measure(self, x: Tensor) -> Tensor:
        if x.numel() == 0:
            return torch.full_like(self.value, torch.nan)
        step = (self.step,) if self.observer.takes_step else ()
        magnitude = self.observer.measure(x, self.axis, self.high, *step)
        if not isinstance(magnitude, Tensor):
            rule = f"an observer must return a tensor of the shape {tuple(self.value.shape)}"
            raise ValueError(f"{rule}, got {magnitude!r}; reduce x by torch operations, without .item()")
        scale = magnitude.float() / self.high
        return scale.clamp(min=SMALLEST) if self.is_dynamic else above_floor(scale)

    def subsample(self, x: Tensor) -> Tensor:
        return self.observer.subsample(x) if self.axis is None else x

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        new, constant = self.measure(x), self.observer.averaging_constant
        check_measured(self, new)
        if constant is None:  # ranks have the same weights
            update_average(self.value, self.batches, new, new.isfinite(), 1.0)
        else:
            new = max_over_ranks(new)
            update_average(self.value, self.batches, new, new > 0, constant)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        if self.is_dynamic and not self.training and not self.frozen:
            new = self.measure(x)
            return torch.where(new.isfinite(), new, self.value)
        return self.value


def _found(observer: object) -> Observer:
    if isinstance(observer, Observer):
        return observer
    if callable(observer):
        name = getattr(observer, "__name__", repr(observer))
        rule = "observer must be a name, or an Observer, which says whether it is averaged over batches"
        example = f"Observer({name}, averaging_constant=0.1) for activations, None for weights"
        raise ValueError(f"{rule}, got the function {name}; write {example}")
    if not isinstance(observer, str) or observer not in OBSERVERS:
        raise unknown_name("observer", observer, OBSERVERS)
    return OBSERVERS[observer]

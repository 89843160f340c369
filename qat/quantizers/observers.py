"""The statistics from which scales are measured, and their moving averages."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from qat.quantizers.scale import SMALLEST

AVERAGING_CONSTANT = 0.1  # the weight of the newest batch in a moving average
ONE_IN = 1000  # elements lies above the 99.9th percentile
SAMPLE = 2**16  # elements per channel that `percentile` and `mse` look at
# The distance between neighbouring levels, by their number and as a multiple of `mean |x|`, with the least
# squared error for normal numbers. Source: Max 1960, "Quantizing for minimum distortion", table II.
LEVEL_DISTANCES = {
    **{2: 2.0, 3: 1.5341, 4: 1.2479, 7: 0.8156, 8: 0.7345, 15: 0.4429, 16: 0.4201},
    **{31: 0.2422, 63: 0.1322, 127: 0.0718, 255: 0.0387},
}
FRACTIONS = tuple(k / 20 for k in range(20, 0, -1))  # of the maximum, compared by `mse`

# Shape of each statistic: any -> `()`, or with axis 0 `(O, I, kH, kW)` -> `(O, 1, 1, 1)`. It is float32.


def largest_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """`max |x|`."""
    x = x.detach()
    if axis is None:
        lowest, highest = torch.aminmax(x)  # one pass and no copy, unlike abs().amax()
        return torch.maximum(highest, -lowest).float()
    return x.abs().amax(other_axes(x, axis), keepdim=True).float()


def mean_magnitude(x: Tensor, axis: int | None, high: int, step: int = 1) -> Tensor:
    """`mean |x|` times the factor with which the grid has the least squared error for normal numbers.

    On the grid {-1, +1} the factor is 1, and the squared error is the least for any numbers.

    Source: Rastegari et al. 2016 (XNOR-Net), section 3.1; for more levels see `LEVEL_DISTANCES`.
    """
    return mean_absolute(x, axis) * (LEVEL_DISTANCES[2 * high // step + 1] * high / step)


def mean_absolute(x: Tensor, axis: int | None) -> Tensor:
    """`mean |x|`."""
    axes, keepdim = other_axes(x, axis), axis is not None
    return x.detach().abs().mean(axes, keepdim=keepdim, dtype=torch.float32)


def percentile_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """The 99.9th percentile of `|x|`, always an element; the maximum of fewer than 1000 elements.

    Of more than 65,536 elements per channel it uses evenly spaced ones.
    """
    rows = _sampled_rows(x, axis)
    above = rows.shape[1] // ONE_IN
    # Not kthvalue, which is not deterministic on CUDA, nor quantile, which sorts.
    return rows.topk(above + 1, dim=1).values[:, -1].reshape(channel_shape(x, axis))


def mse_magnitude(x: Tensor, axis: int | None, high: int, step: int = 1) -> Tensor:
    """The fraction of `max |x|` (0.05, 0.1, ..., 1) whose grid `-high..high` has the least squared error.

    Of more than 65,536 elements per channel it uses evenly spaced ones.
    """
    rows = _sampled_rows(x, axis)
    largest = rows.amax(1, keepdim=True)
    candidates = ((largest * f, (largest * (f / high)).clamp(min=SMALLEST)) for f in FRACTIONS)
    return _least_error(rows, high, candidates, step).reshape(channel_shape(x, axis))


def mse_power_of_two_magnitude(x: Tensor, axis: int | None, high: int, step: int = 1) -> Tensor:
    """The magnitude `high * 2^k` with the least squared error.

    `2^k` is the smallest power of two that clips nothing, or one of the three below it.
    """
    rows = _sampled_rows(x, axis)
    _, exponent = torch.frexp((rows.amax(1, keepdim=True) / high).clamp(min=SMALLEST))
    ones = torch.ones_like(rows[:, :1])
    scales = (torch.ldexp(ones, exponent - less).clamp(min=SMALLEST) for less in range(4))
    least = _least_error(rows, high, ((high * scale, scale) for scale in scales), step)
    return least.reshape(channel_shape(x, axis))


def _least_error(rows: Tensor, high: int, candidates: Iterable[tuple[Tensor, Tensor]], step: int) -> Tensor:
    """The magnitude with the least squared error. Shape: pairs (magnitude, scale) of `(C, 1)` -> `(C, 1)`."""
    first = step - 1  # the smallest code that is not negative
    best = least = torch.full_like(rows[:, :1], torch.inf)
    for magnitude, scale in candidates:
        codes = ((rows / scale).sub_(first).div_(step).round_().mul_(step).add_(first)).clamp_(first, high)
        error = (rows - codes.mul_(scale)).square_().sum(1, keepdim=True)
        best = torch.where(error < least, magnitude, best)
        least = torch.minimum(error, least)
    return best


def other_axes(x: Tensor, axis: int | None) -> list[int]:
    """All axes of x except one, or all if it is None."""
    return [a for a in range(x.dim()) if axis is None or a != axis % x.dim()]


def _sampled_rows(x: Tensor, axis: int | None) -> Tensor:
    """At most `SAMPLE` elements of `|x|` per channel, in float32. Shape: any -> `(C, n)`."""
    x = x.detach()
    rows = x.reshape(1, -1) if axis is None else x.movedim(axis, 0).reshape(x.shape[axis], -1)
    return _evenly_spaced(rows).abs().float()


def _evenly_spaced(rows: Tensor) -> Tensor:
    step = -(-rows.shape[-1] // SAMPLE)
    # An odd step does not select the same column of every image.
    return rows[..., :: step + (step > 1 and step % 2 == 0)]


def channel_shape(x: Tensor, axis: int | None) -> tuple[int, ...]:
    """The shape of one number for each channel of x that broadcasts against x; `()` without an axis."""
    return () if axis is None else tuple(n if a == axis % x.dim() else 1 for a, n in enumerate(x.shape))


def min_max(x: Tensor) -> Tensor:
    """The smallest and the largest element. Shape: any -> `(2,)`; an empty x is returned as it is."""
    return torch.stack(torch.aminmax(x)) if x.numel() else x


def evenly_spaced(x: Tensor) -> Tensor:
    """At most 65,536 elements, evenly spaced. Shape: any -> `(n,)`; an empty x is returned as it is."""
    return _evenly_spaced(x.reshape(-1)) if x.numel() else x


def all_elements(x: Tensor) -> Tensor:
    """x, for a statistic that needs all elements in their shape."""
    return x


@dataclass(frozen=True)
class Observer:
    """A statistic, and the averaging constant of its moving average.

    Without an averaging constant (None) the scale is measured on the current tensor in every mode. With a
    user-defined function: `ObservedScale(7, Observer(my_function, averaging_constant=0.1))`; check the
    function with `qat.testing.check_observer`.

    Raises:
        ValueError: measure is no function, or the averaging constant is neither in (0, 1] nor None.
    """

    measure: Callable[..., Tensor]  # `(x, axis, high)` -> magnitude of the highest code
    # x -> fewer elements, of which `measure` (axis None) is the same, also after a ReLU
    subsample: Callable[[Tensor], Tensor] = all_elements
    averaging_constant: float | None = None  # the weight of the newest batch, in (0, 1]
    takes_step: bool = False  # `measure` has a fourth argument, the distance between neighbouring codes
    name: str = ""  # of the function of a user

    def __post_init__(self) -> None:
        if not callable(self.measure) or isinstance(self.measure, type):
            raise ValueError(f"measure must be a function (x, axis, high) -> magnitude, got {self.measure!r}")
        constant = self.averaging_constant
        if constant is not None and not (isinstance(constant, int | float) and 0 < constant <= 1):
            rule = f"averaging_constant must be in (0, 1], or None, got {constant!r}"
            raise ValueError(f"{rule}; 0.1 gives the newest batch a tenth, None averages nothing")


ObserverName = Literal[
    "max", "mean", "percentile", "mse", "mse_power_of_two", "ema", "percentile_ema", "mse_ema"
]
OBSERVERS: dict[str, Observer] = {
    "max": Observer(largest_magnitude, min_max, None),
    "mean": Observer(mean_magnitude, evenly_spaced, None, takes_step=True),
    "percentile": Observer(percentile_magnitude, evenly_spaced, None),
    "mse": Observer(mse_magnitude, evenly_spaced, None, takes_step=True),
    "mse_power_of_two": Observer(mse_power_of_two_magnitude, evenly_spaced, None, takes_step=True),
    "ema": Observer(largest_magnitude, min_max, AVERAGING_CONSTANT),
    "percentile_ema": Observer(percentile_magnitude, evenly_spaced, AVERAGING_CONSTANT),
    "mse_ema": Observer(mse_magnitude, evenly_spaced, AVERAGING_CONSTANT),
}


def update_average(average: Tensor, batches: Tensor, new: Tensor, usable: Tensor, constant: float) -> None:
    """Set an average by its first usable batch, and update it by later ones: `(1 - c) old + c new`.

    Shape: `batches` and `usable` `()`, or that of the average, whose elements then count their own batches.
    """
    moved = torch.where(batches == 0, new, (1 - constant) * average + constant * new)
    average.copy_(torch.where(usable, moved, average))
    batches.add_(usable)

"""The statistics from which scales are measured, and how far one batch moves them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

AVERAGING_CONSTANT = 0.1  # the weight of the newest batch in a moving average
ONE_IN = 1000  # elements lies above the 99.9th percentile
SAMPLE = 2**16  # elements per channel that `percentile` and `mse` look at
FRACTIONS = tuple(k / 20 for k in range(20, 0, -1))  # of the maximum, tried by `mse`
_TINY = torch.finfo(torch.float32).tiny


def largest_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """`max |x|` over the tensor, or over all axes but one, kept for broadcasting.

    Shape: any -> `()`, or for axis 0 of `(O, I, kH, kW)` `(O, 1, 1, 1)`. Float32.
    """
    x = x.detach()
    if axis is None:
        lowest, highest = torch.aminmax(x)  # one pass and no copy, unlike abs().amax()
        return torch.maximum(highest, -lowest).float()
    return x.abs().amax(other_axes(x, axis), keepdim=True).float()


def mean_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """`mean |x|`, the scale of a binary weight; shapes as for `largest_magnitude`.

    Source: Rastegari et al. 2016 (XNOR-Net), section 3.1: of all scales it has the least squared error.
    """
    magnitude = x.detach().abs()
    if axis is None:
        return magnitude.mean(dtype=torch.float32)
    return magnitude.mean(other_axes(x, axis), keepdim=True, dtype=torch.float32)


def percentile_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """The 99.9th percentile of `|x|` (an element, not interpolated); shapes as for `largest_magnitude`.

    Of more than 65,536 elements per channel it looks at evenly spaced ones. Of fewer than 1000 it is the
    maximum.
    """
    rows = _sampled_rows(x, axis)
    above = rows.shape[1] // ONE_IN
    # Not kthvalue, which is not deterministic on CUDA, nor quantile, which sorts.
    return _broadcastable(rows.topk(above + 1, dim=1).values[:, -1], x, axis)


def mse_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """The fraction of `max |x|` (0.05, 0.1, ..., 1) whose grid `-high..high` has the least squared error.

    Shapes as for `largest_magnitude`. Of more than 65,536 elements per channel it looks at evenly spaced
    ones.
    """
    rows = _sampled_rows(x, axis)
    largest = rows.amax(1, keepdim=True)
    tried = ((largest * f, (largest * (f / high)).clamp(min=_TINY)) for f in FRACTIONS)
    return _broadcastable(_least_error(rows, high, tried), x, axis)


def mse_power_of_two_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """The magnitude `high * 2^k` with the least squared error; shapes as for `largest_magnitude`.

    k is that of the smallest power of two that clips nothing, or up to three less: at 8 bits most often the
    first, at 4 bits, where steps count more than a few clipped elements, often the second.
    """
    rows = _sampled_rows(x, axis)
    _, exponent = torch.frexp(rows.amax(1, keepdim=True) / high)
    ones = torch.ones_like(rows[:, :1])
    scales = (torch.ldexp(ones, exponent - less).clamp(min=_TINY) for less in range(4))
    return _broadcastable(_least_error(rows, high, ((high * scale, scale) for scale in scales)), x, axis)


def _least_error(rows: Tensor, high: int, tried: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Of several pairs (magnitude, scale), each `(C, 1)`: the magnitude of least squared error, `(C,)`."""
    best = least = torch.full_like(rows[:, :1], torch.inf)
    for magnitude, scale in tried:
        error = (rows - (rows / scale).round_().clamp_(max=high).mul_(scale)).square_().sum(1, keepdim=True)
        best = torch.where(error < least, magnitude, best)
        least = torch.minimum(error, least)
    return best[:, 0]


def other_axes(x: Tensor, axis: int | None) -> list[int]:
    """All axes of x but one; None: all."""
    return [a for a in range(x.dim()) if axis is None or a != axis % x.dim()]


def _sampled_rows(x: Tensor, axis: int | None) -> Tensor:
    """`|x|` in float32, a row for each channel, of at most `SAMPLE` elements."""
    x = x.detach()
    rows = x.reshape(1, -1) if axis is None else x.movedim(axis, 0).reshape(x.shape[axis], -1)
    return _evenly_spaced(rows).abs().float()


def _evenly_spaced(rows: Tensor) -> Tensor:
    step = -(-rows.shape[-1] // SAMPLE)
    # An odd step does not fall on the same column of every image.
    return rows[..., :: step + (step > 1 and step % 2 == 0)]


def _broadcastable(values: Tensor, x: Tensor, axis: int | None) -> Tensor:
    """One value for each channel, in the shape that broadcasts against x."""
    return values[0] if axis is None else values.reshape(channel_shape(x, axis))


def channel_shape(x: Tensor, axis: int | None) -> tuple[int, ...]:
    """The shape of one number for each channel of x that broadcasts against x; `()` without an axis."""
    return () if axis is None else tuple(n if a == axis % x.dim() else 1 for a, n in enumerate(x.shape))


def min_max(x: Tensor) -> Tensor:
    """The smallest and the largest element, from which a maximum is measured. Shape: any -> `(2,)`."""
    return torch.stack(torch.aminmax(x)) if x.numel() else x


def evenly_spaced(x: Tensor) -> Tensor:
    """Evenly spaced elements, if there are more than 65,536. Shape: any -> `(n,)`."""
    return _evenly_spaced(x.reshape(-1)) if x.numel() else x


@dataclass(frozen=True)
class Observer:
    """A statistic, and the averaging constant of its moving average.

    Args:
        measure: `(x, axis, high)` -> the magnitude that the highest code stands for.
        subsample: fewer elements of x from which the same is measured, for the tensor as a whole.
        averaging_constant: the weight of the newest batch in the moving average, in (0, 1]; None: there is no
            average, and the scale is that of the tensor at hand in every mode (weights).
        passes_outside: whether the gradient of x passes beyond the ends of the grid, too.
    """

    measure: Callable[[Tensor, int | None, int], Tensor]
    subsample: Callable[[Tensor], Tensor]
    averaging_constant: float | None
    passes_outside: bool = False


ObserverName = Literal[
    "max", "mean", "percentile", "mse", "mse_power_of_two", "ema", "percentile_ema", "mse_ema"
]
OBSERVERS: dict[str, Observer] = {
    "max": Observer(largest_magnitude, min_max, None),
    # Many elements of a binary weight lie beyond its two values. Without a gradient they would stay there.
    "mean": Observer(mean_magnitude, evenly_spaced, None, passes_outside=True),
    "percentile": Observer(percentile_magnitude, evenly_spaced, None),
    "mse": Observer(mse_magnitude, evenly_spaced, None),
    "mse_power_of_two": Observer(mse_power_of_two_magnitude, evenly_spaced, None),
    "ema": Observer(largest_magnitude, min_max, AVERAGING_CONSTANT),
    "percentile_ema": Observer(percentile_magnitude, evenly_spaced, AVERAGING_CONSTANT),
    "mse_ema": Observer(mse_magnitude, evenly_spaced, AVERAGING_CONSTANT),
}


def update_average(average: Tensor, batches: Tensor, new: Tensor, usable: Tensor, constant: float) -> None:
    """Let the first usable batch set an average, and move it by a later one: `(1 - c) old + c new`."""
    moved = torch.where(batches == 0, new, (1 - constant) * average + constant * new)
    average.copy_(torch.where(usable, moved, average))
    batches.add_(usable.all())

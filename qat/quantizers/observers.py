"""What a scale is measured by, and how far one batch moves it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

ONE_IN = 1000  # elements lies above the 99.9th percentile
SAMPLE = 2**16  # elements a channel that `percentile` and `mse` look at
FRACTIONS = tuple(k / 20 for k in range(20, 0, -1))  # of the maximum, tried by `mse`


def largest_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """`max |x|` over the tensor, or over all axes but one, kept for broadcasting.

    Shape: any -> `()`, or for axis 0 of `(O, I, kH, kW)` `(O, 1, 1, 1)`. Float32.
    """
    x = x.detach()
    if axis is None:
        lowest, highest = torch.aminmax(x)  # one pass and no copy, unlike abs().amax()
        return torch.maximum(highest, -lowest).float()
    return x.abs().amax(_others(x, axis), keepdim=True).float()


def mean_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """`mean |x|`, the scale of a binary weight; shapes as for `largest_magnitude`.

    Source: Rastegari et al. 2016 (XNOR-Net), section 3.1: of all scales it gives the least squared error.
    """
    magnitude = x.detach().abs()
    if axis is None:
        return magnitude.mean(dtype=torch.float32)
    return magnitude.mean(_others(x, axis), keepdim=True, dtype=torch.float32)


def percentile_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """The 99.9th percentile of `|x|` (an element, not interpolated); shapes as for `largest_magnitude`.

    Of more than 65,536 elements a channel, evenly spaced ones are looked at. Below 1000 it is the maximum.
    """
    rows = _sampled_rows(x, axis)
    above = rows.shape[1] // ONE_IN
    # Not kthvalue, which is not deterministic on CUDA, nor quantile, which sorts.
    return _kept(rows.topk(above + 1, dim=1).values[:, -1], x, axis)


def mse_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """The fraction of `max |x|` (0.05, 0.1, ..., 1) whose grid `-high..high` has the least squared error.

    Shapes as for `largest_magnitude`. Of more than 65,536 elements a channel, evenly spaced ones are looked
    at.
    """
    rows = _sampled_rows(x, axis)
    largest = rows.amax(1, keepdim=True)
    best, least = largest, torch.full_like(largest, torch.inf)
    for fraction in FRACTIONS:
        scale = (largest * (fraction / high)).clamp(min=torch.finfo(torch.float32).tiny)
        error = (rows - (rows / scale).round_().clamp_(max=high).mul_(scale)).square_().sum(1, keepdim=True)
        best = torch.where(error < least, largest * fraction, best)
        least = torch.minimum(error, least)
    return _kept(best[:, 0], x, axis)


def mse_power_of_two_magnitude(x: Tensor, axis: int | None, high: int) -> Tensor:
    """The magnitude `high * 2^k` with the least squared error; shapes as for `largest_magnitude`.

    k is that of the smallest power of two that clips nothing, or up to three less: at 8 bits most often the
    first, at 4 bits, where steps count more than a few clipped elements, often the second.
    """
    rows = _sampled_rows(x, axis)
    _, exponent = torch.frexp(rows.amax(1, keepdim=True) / high)
    least = best = torch.full_like(rows[:, :1], torch.inf)
    for less in range(4):
        scale = torch.ldexp(torch.ones_like(best), exponent - less).clamp(min=torch.finfo(torch.float32).tiny)
        error = (rows - (rows / scale).round_().clamp_(max=high).mul_(scale)).square_().sum(1, keepdim=True)
        best = torch.where(error < least, high * scale, best)
        least = torch.minimum(error, least)
    return _kept(best[:, 0], x, axis)


def _others(x: Tensor, axis: int) -> list[int]:
    return [a for a in range(x.dim()) if a != axis % x.dim()]


def _sampled_rows(x: Tensor, axis: int | None) -> Tensor:
    """`|x|` in float32, a row for each channel, of at most `SAMPLE` elements."""
    x = x.detach()
    rows = x.reshape(1, -1) if axis is None else x.movedim(axis, 0).reshape(x.shape[axis], -1)
    return _spaced(rows).abs().float()


def _spaced(rows: Tensor) -> Tensor:
    step = -(-rows.shape[-1] // SAMPLE)
    # An odd step does not fall on the same column of every image.
    return rows[..., :: step + (step > 1 and step % 2 == 0)]


def extremes(x: Tensor) -> Tensor:
    """The smallest and the largest element, from which a maximum is measured. Shape: any -> `(2,)`."""
    return torch.stack(torch.aminmax(x)) if x.numel() else x


def spaced(x: Tensor) -> Tensor:
    """Of more than 65,536 elements evenly spaced ones. Shape: any -> `(n,)`."""
    return _spaced(x.reshape(-1)) if x.numel() else x


def _kept(values: Tensor, x: Tensor, axis: int | None) -> Tensor:
    """One value for each channel in the shape that broadcasts against x."""
    if axis is None:
        return values[0]
    return values.reshape([x.shape[a] if a == axis % x.dim() else 1 for a in range(x.dim())])


@dataclass(frozen=True)
class Observer:
    """A statistic, and the share of the newest batch in its moving average.

    Args:
        measure: `(x, axis, high)` -> the magnitude that the highest code stands for.
        glance: fewer elements of x from which the same is measured, for the tensor as a whole.
        share: in (0, 1]; None: no memory at all, the scale follows the tensor as it is now in every mode
            (weights).
        passes_outside: whether the gradient of x passes beyond the ends of the grid, too.
    """

    measure: Callable[[Tensor, int | None, int], Tensor]
    glance: Callable[[Tensor], Tensor]
    share: float | None
    passes_outside: bool = False


ObserverName = Literal[
    "max", "mean", "percentile", "mse", "mse_power_of_two", "ema", "percentile_ema", "mse_ema"
]
OBSERVERS: dict[str, Observer] = {
    "max": Observer(largest_magnitude, extremes, share=None),
    # Many elements of a binary weight lie beyond its two values: with a mask they would stay there for good.
    "mean": Observer(mean_magnitude, spaced, share=None, passes_outside=True),
    "percentile": Observer(percentile_magnitude, spaced, share=None),
    "mse": Observer(mse_magnitude, spaced, share=None),
    "mse_power_of_two": Observer(mse_power_of_two_magnitude, spaced, share=None),
    "ema": Observer(largest_magnitude, extremes, share=0.1),
    "percentile_ema": Observer(percentile_magnitude, spaced, share=0.1),
    "mse_ema": Observer(mse_magnitude, spaced, share=0.1),
}

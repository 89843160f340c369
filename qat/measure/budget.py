"""The largest batch that fits into a given memory."""

import math
import re
from dataclasses import dataclass

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
Point = tuple[int, int]
"""A batch size, and the peak in bytes that was measured at it."""


@dataclass(frozen=True)
class BatchBudget:
    """The largest batch of each mode that fits into a memory."""

    bytes: int  # that a training step may take in addition to the process that holds the network
    points: dict[str, tuple[Point, Point]]  # by mode, the two measurements
    largest: dict[str, int | None]  # by mode; None: the peak did not grow with the batch


def parse_bytes(text: str) -> int:
    """The number of bytes in a text such as `2GB`, `512 MiB` or `1.5e9`.

    Raises:
        ValueError: it is not a positive number with a known unit.
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    try:
        size = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    except (ValueError, KeyError, OverflowError):
        size = 0
    if size < 1:
        raise ValueError(f"budget must be a number of bytes, as in 2GB or 512MiB; got {text!r}")
    return size


def second_batch(point: Point, budget: int) -> int:
    """The batch to measure beside the first: a quarter of what may fit, at most eight times the first.

    The nearer it lies to the batch that fits, the less the noise of the measurements matters. If it would lie
    too near to the first, it is half of the first.
    """
    batch, peak = point
    probe = min(8 * batch, budget * batch // max(peak, 1) // 4)
    return probe if probe >= 2 * batch else batch // 2


def largest_batch(points: tuple[Point, Point], budget: int) -> int | None:
    """The batch at which the line through two measured peaks reaches the budget.

    It is 0 if none fits, and None if the peaks do not grow with the batch.
    """
    (batch, peak), (other, its_peak) = points
    slope = (its_peak - peak) / (other - batch)
    return None if slope <= 0 else max(0, math.floor((budget - (peak - slope * batch)) / slope))

"""The largest batch that fits into so much memory."""

import math
import re
from dataclasses import dataclass

_UNITS = {"B": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("KMGT", 1)
    for kind, base in (("B", 1000), ("iB", 1024))
}


Point = tuple[int, int]
"""A batch size, and the peak in bytes that was measured at it."""


@dataclass(frozen=True)
class Budget:
    """What fits.

    Args:
        bytes: that a training step may take on top of the process that holds the network.
        points: by mode, the two measurements.
        largest: by mode, the largest batch that fits; None: the peak did not grow with the batch.
    """

    bytes: int
    points: dict[str, tuple[Point, Point]]
    largest: dict[str, int | None]


def parse_bytes(text: str) -> int:
    """The bytes that `2GB`, `512 MiB` or `1.5e9` say.

    Raises:
        ValueError: it is not a positive number with a known unit.
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)\s*", text, re.IGNORECASE)
    units = {name.lower(): factor for name, factor in _UNITS.items()}
    try:
        size = int(float(found[1]) * units[found[2].lower() or "b"]) if found else 0
    except (ValueError, KeyError, OverflowError):
        size = 0
    if size < 1:
        raise ValueError(f"budget must be a number of bytes, as in 2GB or 512MiB; got {text!r}")
    return size


def second_batch(point: Point, budget: int) -> int:
    """The batch to measure beside the first: a quarter of what may fit, at most eight times the first.

    The nearer it lies to what fits, the less the noise of the measurements counts. Where it would lie too
    near the first, half of the first.
    """
    batch, peak = point
    probe = min(8 * batch, budget * batch // max(peak, 1) // 4)
    return probe if probe >= 2 * batch else batch // 2


def largest_batch(points: tuple[Point, Point], budget: int) -> int | None:
    """Where the line through two measured peaks meets the budget.

    Returns:
        The batch, 0 where none fits; None: the peaks do not grow with the batch.
    """
    (batch, peak), (other, its_peak) = points
    each = (its_peak - peak) / (other - batch)
    if each <= 0:
        return None
    return max(0, math.floor((budget - (peak - each * batch)) / each))

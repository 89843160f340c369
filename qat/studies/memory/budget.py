"""The largest batch that fits into so much memory."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

_UNITS = {"B": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("KMGT", 1)
    for kind, base in (("B", 1000), ("iB", 1024))
}


@dataclass(frozen=True)
class Budget:
    """What fits.

    Args:
        bytes: that a training step may take on top of the process that holds the network.
        batches: the two batch sizes at which peaks were measured.
        peaks: by mode, the growth of the process at these.
        largest: by mode, the largest batch that fits; None: the peak did not grow with the batch.
    """

    bytes: int
    batches: tuple[int, int]
    peaks: dict[str, tuple[int, int]]
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


def largest_batch(batches: Sequence[int], peaks: Sequence[int], budget: int) -> int | None:
    """Where the line through two measured peaks meets the budget.

    Args:
        batches: two different sizes.
        peaks: the bytes measured at these.
        budget: bytes.

    Returns:
        The batch, 0 where none fits; None: the peaks do not grow with the batch.
    """
    each = (peaks[1] - peaks[0]) / (batches[1] - batches[0])
    if each <= 0:
        return None
    return max(0, math.floor((budget - (peaks[0] - each * batches[0])) / each))

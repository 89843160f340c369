"""Cost against size: the same quantizers on tensors of 10,000 to 100,000,000 elements."""

import os
from collections.abc import Callable, Sequence

import torch

from qat.studies.benchmark import peer_torch_ao
from qat.studies.benchmark.both_ways import ours
from qat.studies.benchmark.candidate import Candidate
from qat.studies.benchmark.ops import BITS, LEARNED, OBSERVED, floor, learned, numbers, observed
from qat.studies.benchmark.rounds import measure
from qat.studies.benchmark.timing import Timing

SIZES = tuple(10**power for power in range(4, 9))
UNIT = 5_000  # elements of one image here: sizes are multiples of it
BYTES = 48  # an element: the most that an eager learned scale holds at a time, with room to spare
UNKNOWN = 4 * 2**30  # bytes taken to be free where the system does not say


def measure_sizes(
    sizes: Sequence[int], rounds: int, device: torch.device, show: Callable[[str], None]
) -> dict[int, list[Timing]]:
    """Time each size on its own, smallest first; what does not fit in memory says so.

    Args:
        sizes: elements, multiples of `UNIT`.
        rounds, device, show: as in `measure`, for each size.
    """
    timings = {}
    for size in sorted(sizes):
        free = free_bytes(device)
        if BYTES * size > free:
            missing = f"needs about {BYTES * size / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"
            timings[size] = [Timing(name, missing=missing) for name in NAMES]
            for _ in range(len(NAMES) * (rounds + 1)):
                show(f"{size:,} elements do not fit")
        else:
            timings[size] = measure(
                candidates(size, device), rounds, device, lambda text, n=size: show(f"{n:,} elements, {text}")
            )
    return timings


def candidates(size: int, device: torch.device) -> list[Candidate]:
    """The floor, two of ours, and torch's operator, on `(size / UNIT, 8, 25, 25)`."""
    x, g = numbers((size // UNIT, 8, 25, 25), device)
    return [
        floor(x, g),
        ours(OBSERVED, lambda: observed(x), x, g),
        ours(LEARNED, lambda: learned(x), x, g),
        peer_torch_ao.quantizers(x, g, BITS)[0],
    ]


NAMES = [candidate.name for candidate in candidates(UNIT, torch.device("cpu"))]


def free_bytes(device: torch.device) -> int:
    """Memory that is free on the device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):  # Windows has no sysconf, macOS not this name
        return UNKNOWN

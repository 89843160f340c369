"""Cost against size: the same quantizers on tensors of 10,000 to 100,000,000 elements."""

import os

import torch

from qat.measure.benchmark import peer_torch_ao
from qat.measure.benchmark.both_ways import ours
from qat.measure.benchmark.candidate import Candidate
from qat.measure.benchmark.ops import BITS, FLOOR, LEARNED, OBSERVED, floor, learned, numbers, observed

SIZES = tuple(10**power for power in range(4, 9))
UNIT = 5_000  # elements of one image here: sizes are multiples of it
NAMES = (FLOOR, OBSERVED, LEARNED, peer_torch_ao.PER_TENSOR)
BYTES = 48  # an element: the most that a learned scale without a compiler holds at a time, and some more
UNKNOWN = 4 * 2**30  # bytes taken to be free where the system does not say


def candidates(size: int, device: torch.device) -> list[Candidate]:
    """`NAMES` on a tensor `(size / UNIT, 8, 25, 25)`."""
    x, g = numbers((size // UNIT, 8, 25, 25), device)
    return [
        floor(x, g),
        ours(OBSERVED, lambda: observed(x), x, g),
        ours(LEARNED, lambda: learned(x), x, g),
        next(peer for peer in peer_torch_ao.quantizers(x, g, BITS) if peer.name == peer_torch_ao.PER_TENSOR),
    ]


def too_large(size: int, device: torch.device) -> str:
    """Why a tensor of this size is left out; empty where its quantizers fit in memory."""
    free = _free_bytes(device)
    if BYTES * size <= free:
        return ""
    return f"{size:,} elements need about {BYTES * size / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):  # Windows has no sysconf, macOS not this name
        return UNKNOWN

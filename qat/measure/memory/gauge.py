"""How much memory this process holds, and its peak while something runs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import torch

INTERVAL = 0.001  # seconds between two looks


@dataclass
class Peak:
    """The largest number of bytes seen; final when the watch has ended."""

    bytes: int = 0


def held(device: str) -> int:
    """Bytes now: of the process's resident memory, or on CUDA of what torch has allocated."""
    if device == "cuda":
        return torch.cuda.memory_allocated()
    return int(psutil.Process().memory_info().rss)


@contextmanager
def watched(device: str) -> Iterator[Peak]:
    """Find the peak of `held` inside: CUDA's own count, or looks from another thread every millisecond."""
    peak = Peak(held(device))
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated()
        return
    process, done = psutil.Process(), threading.Event()

    def look() -> None:
        while not done.wait(INTERVAL):
            peak.bytes = max(peak.bytes, int(process.memory_info().rss))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()

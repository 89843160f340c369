"""By how much training steps make a process grow."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

import psutil
import torch

from qat.measure.fresh_process import call_in_fresh_process
from qat.measure.workload import Workload
from qat.names import one_line

INTERVAL = 0.001  # seconds between two readings
STEPS = 2


class Growth(NamedTuple):
    """Bytes by which a process grew: at most, and between forward and backward."""

    peak: int
    held: int


def growth(workload: Workload, name: str, size: int) -> Growth:
    """How much a fresh process grows in training steps on `size` images in a mode.

    Raises:
        ChildProcessError: the process failed.
    """
    # glibc keeps freed blocks smaller than a threshold, which it raises by itself: the process would not
    # shrink, and look as if it still held them. Other systems ignore the variable.
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536"}
    try:
        return Growth(*call_in_fresh_process(train_and_watch, asdict(workload), name, size, **environment))
    except ChildProcessError as error:
        raise ChildProcessError(
            f"the process that measures {name!r} at batch {size} failed: {one_line(error)}; "
            "try a smaller batch"
        ) from error


def train_and_watch(workload: dict[str, Any], name: str, size: int) -> Growth:
    """Take a few steps in this process.

    Growth counts from the process that holds the network, the state of its optimizer, and everything that a
    step on two images leaves behind; it includes the images and the gradients.
    """
    work = Workload(**workload)
    step = work.train_step(name)
    step(*work.random_batch(size=2))
    step.optimizer.zero_grad()
    before, between = process_memory(work.device), 0
    with watched(work.device) as peak:
        for number in range(STEPS):
            step.optimizer.zero_grad()
            images, labels = work.random_batch(number, size)
            loss = step.loss(images, labels)
            between = max(between, process_memory(work.device))
            loss.backward()
            step.optimizer.step()
            del images, labels, loss
    return Growth(peak() - before, between - before)


def process_memory(device: str) -> int:
    """Bytes that are in use now: the process's resident memory, or on CUDA what torch has allocated."""
    return torch.cuda.memory_allocated() if device == "cuda" else int(psutil.Process().memory_info().rss)


@contextmanager
def watched(device: str) -> Iterator[Callable[[], int]]:
    """Yield a function that returns the peak of `process_memory` so far, as seen inside the block.

    On the CPU a thread reads it every millisecond; CUDA counts by itself.
    """
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        yield torch.cuda.max_memory_allocated
        return
    peak, done = process_memory(device), threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(INTERVAL):
            peak = max(peak, process_memory(device))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: peak
    finally:
        done.set()
        thread.join()

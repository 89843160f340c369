"""Rounds in one process: each round runs every candidate once, in an order that rotates."""

import gc
import time
from collections.abc import Callable, Sequence

import torch

from qat.studies.benchmark.candidate import Candidate, Work
from qat.studies.benchmark.timing import Timing

WARM_UP = 3  # calls: the second one may still compile (a gradient's strides are known then)
TURN = 0.02  # seconds: what takes less is called several times a turn
MOST = 1000  # calls a turn


def seconds_of(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """The seconds of one call, mean over several in a row; on a GPU by its own clock."""
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000 / calls


def measure(
    candidates: Sequence[Candidate], rounds: int, device: torch.device, show: Callable[[str], None]
) -> list[Timing]:
    """Build all candidates, call each a few times, then time them round by round.

    Args:
        candidates: in the order of the table.
        rounds: at least 1.
        device: that they work on.
        show: told what is going on before each of `len(candidates) * (rounds + 1)` turns.
    """
    timings = {candidate.name: Timing(candidate.name, missing=candidate.missing) for candidate in candidates}
    works: dict[str, tuple[Work, int]] = {}
    for candidate in candidates:
        show(f"first calls: {candidate.name}")
        timing = timings[candidate.name]
        if timing.missing:
            continue
        try:
            work = candidate.build()
            seconds = [seconds_of(work.call, 1, device) for _ in range(WARM_UP)]
            timing.path = work.path()
        except Exception as error:  # whatever another framework raises; the others are timed all the same
            timing.error = _one_line(error)
        else:
            works[candidate.name] = work, min(MOST, max(1, round(TURN / max(seconds[-1], 1e-9))))
    for number in range(rounds):
        gc.collect()  # here, not within the time of whoever allocates next
        gc.disable()
        names = list(timings)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            show(f"round {number + 1} of {rounds}: {name}")
            if name in works:
                work, calls = works[name]
                timings[name].seconds.append(seconds_of(work.call, calls, device))
        gc.enable()
    return list(timings.values())


def _one_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"

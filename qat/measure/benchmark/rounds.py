"""Rounds in one process: each round runs every candidate once, in an order that rotates."""

import gc
import time
from collections.abc import Callable, Sequence

import torch

from qat.measure.benchmark.candidate import Candidate, Work
from qat.measure.benchmark.timing import Timing

FIRST_CALLS = 3  # the second may still compile: only then are a gradient's strides known
TURN = 0.1  # seconds: what takes less is called several times a turn, for large memory comes at random costs
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


def turns(candidates: int, rounds: int) -> int:
    """How many times `measure` shows what is going on."""
    return candidates * (rounds + 2)


def measure(
    candidates: Sequence[Candidate], rounds: int, device: torch.device, show: Callable[[str], None]
) -> list[Timing]:
    """Build all candidates, call each a few times, then time them round by round.

    Args:
        candidates: in the order of the table.
        rounds: at least 1.
        device: that they work on.
        show: told what is going on before each of `turns(len(candidates), rounds)` turns.
    """
    timings = {candidate.name: Timing(candidate.name, missing=candidate.missing) for candidate in candidates}
    works: dict[str, Work] = {}
    for candidate in candidates:
        show(f"first calls: {candidate.name}")
        if not candidate.missing:
            _start(candidate, works, timings[candidate.name])
    calls: dict[str, int] = {}
    for name in timings:
        # Once more: building the others can make a compiled one compile again.
        show(f"second calls: {name}")
        if name in works:
            seconds = [seconds_of(works[name].call, 1, device) for _ in range(2)]
            calls[name] = min(MOST, max(1, round(TURN / max(seconds[-1], 1e-9))))
    gc.freeze()  # what is there by now need not be looked through in each round
    for number in range(rounds):
        gc.collect()  # here, not within the time of whoever allocates next
        gc.disable()
        names = list(timings)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            show(f"round {number + 1} of {rounds}: {name}")
            if name in works:
                timings[name].seconds.append(seconds_of(works[name].call, calls[name], device))
        gc.enable()
    gc.unfreeze()
    return list(timings.values())


def _start(candidate: Candidate, works: dict[str, Work], timing: Timing) -> None:
    try:
        work = candidate.build()
        for _ in range(FIRST_CALLS):
            work.call()
        timing.path = work.path()
    except Exception as error:  # whatever another framework raises; the others are timed all the same
        text = str(error).strip().splitlines()
        timing.error = f"{type(error).__name__}: {text[0] if text else 'no message'}"
    else:
        works[candidate.name] = work

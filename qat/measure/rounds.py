"""Time candidates in rounds within one process: each round runs every candidate, in an order that rotates."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import median, quantiles
from typing import NamedTuple

import torch

from qat.progress import announced

FIRST_CALLS = 3  # the second may still compile: only then are a gradient's strides known
TURN = 0.1  # seconds: a shorter call is repeated within its turn, because the cost of large memory varies
MOST = 1000  # calls in a turn


class TimedCall(NamedTuple):
    """A call to be timed, and a function that tells how its quantizers ran (empty: it has none)."""

    call: Callable[[], object]
    path: Callable[[], str] = str


class Candidate(NamedTuple):
    """One row of a table of times: its unique name, what makes its call, an optional package it needs."""

    name: str
    build: Callable[[], TimedCall]
    package: str | None = None

    @property
    def missing(self) -> str:
        """Why it cannot run here, with the remedy; empty if it can."""
        if self.package is None or find_spec(self.package):
            return ""
        return f'{self.package} is not installed: python -m pip install --editable ".[bench]"'


@dataclass
class Timing:
    """The seconds of one call of a candidate, once per round; all candidates that ran share the rounds."""

    name: str
    path: str = ""  # how its quantizers ran
    seconds: list[float] = field(default_factory=list)
    missing: str = ""  # why it could not run here
    error: str = ""  # what it raised

    @property
    def median(self) -> float:
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """The distance between the quartiles, in seconds; 0 for a single round."""
        low, _, high = quartiles(self.seconds)
        return high - low

    def ratios(self, other: "Timing") -> list[float]:
        """Time relative to another candidate, round by round: what slows a whole round affects both."""
        return [own / its for own, its in zip(self.seconds, other.seconds, strict=True)]

    def ratio(self, other: "Timing") -> float:
        """The median of `ratios`."""
        return median(self.ratios(other))

    @property
    def absence(self) -> str:
        """Why there are no seconds."""
        return f"{self.name}: {self.missing or 'failed: ' + self.error}"


def quartiles(values: Sequence[float]) -> list[float]:
    """The lower quartile, the median and the upper quartile."""
    return quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3


def seconds_of(call: Callable[[], object], calls: int, device: str) -> float:
    """The mean seconds of one of several calls in a row; a GPU is waited for before and after them."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return (time.perf_counter() - start) / calls


def rotate(names: Sequence[str], rounds: int) -> Iterator[list[str]]:
    """Yield the order of each round. Garbage is collected before a round, and not during it."""
    gc.freeze()  # the objects that exist now need not be examined before each round
    try:
        for number in range(rounds):
            gc.collect()
            gc.disable()
            first = number % max(1, len(names))
            yield [*names[first:], *names[:first]]
            gc.enable()
    finally:
        gc.enable()
        gc.unfreeze()


def measure(title: str, candidates: Sequence[Candidate], rounds: int, device: str) -> list[Timing]:
    """Build all candidates, call each a few times, then time them round by round, beside a progress bar."""
    timings = {candidate.name: Timing(candidate.name, missing=candidate.missing) for candidate in candidates}
    calls: dict[str, Callable[[], object]] = {}
    repeats: dict[str, int] = {}
    with announced(title, len(candidates) * (rounds + 2)) as announce:
        for name, build, _ in candidates:
            announce(f"first calls: {name}")
            if timings[name].missing:
                continue
            try:
                call, path = build()
                for _ in range(FIRST_CALLS):
                    call()
                timings[name].path, calls[name] = path(), call
            except Exception as error:  # whatever another framework raises; the others are timed all the same
                message = (str(error).strip() or "no message").splitlines()[0]
                timings[name].error = f"{type(error).__name__}: {message}"
        for name in timings:
            # Once more: building the others can make a compiled candidate compile again.
            announce(f"second calls: {name}")
            if name in calls:
                seconds = [seconds_of(calls[name], 1, device) for _ in range(2)]
                repeats[name] = min(MOST, max(1, round(TURN / max(seconds[-1], 1e-9))))
        for number, names in enumerate(rotate(list(timings), rounds), 1):
            for name in names:
                announce(f"round {number} of {rounds}: {name}")
                if name in calls:
                    timings[name].seconds.append(seconds_of(calls[name], repeats[name], device))
    return list(timings.values())

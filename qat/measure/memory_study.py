"""The memory study: saved, held and peak memory of each mode, its step time, and what it computes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from qat.measure.budget import BatchBudget, Point, largest_batch, parse_bytes, second_batch
from qat.measure.depth import CURVES, DepthSweep, sweep_depths
from qat.measure.growth import growth
from qat.measure.modes import MEMORY_MODES, MODES, reference_of
from qat.measure.rounds import Timing, rotate, seconds_of
from qat.measure.workload import Workload

# Work that the progress bar counts, in steps: a fresh process, and a count of the saved bytes.
_PROCESS, _COUNT = 6.0, 0.5


@dataclass(frozen=True)
class StudyOptions:
    """What the memory study measures.

    Args:
        rounds: Training steps of each mode, at least 3; the first is not timed.
        depth: Also count the saved bytes of networks with these numbers of residual blocks, as in 8 16 32.
        budget: Also find the largest batch of each mode that fits into this amount of memory, as in 2GB.

    Raises:
        ValueError: an argument is out of its range.
    """

    rounds: int = 11
    depth: tuple[int, ...] = ()
    budget: str | None = None

    def __post_init__(self) -> None:
        if self.rounds < 3:
            raise ValueError(f"rounds must be at least 3, the first of which is not timed; got {self.rounds}")
        if self.depth and (len(set(self.depth)) < 2 or min(self.depth) < 1):
            given = " ".join(map(str, self.depth))
            raise ValueError(f"depth must be two or more numbers of blocks, as in 8 16 32; got {given}")
        if self.budget is not None:
            parse_bytes(self.budget)

    @property
    def work(self) -> float:
        """The work that `run_study` announces, in steps."""
        each = _COUNT + self.rounds + _PROCESS * (1 if self.budget is None else 3)
        return len(MEMORY_MODES) * each + _COUNT * len(CURVES) * len(set(self.depth))


@dataclass
class MemoryRow:
    """One mode."""

    saved: int  # bytes that autograd keeps between forward and backward, counted
    timing: Timing  # of each step but the first
    # Whether losses, gradients and state equalled those of its reference after every step, to the last bit.
    identical: bool | None = None  # None: it has no reference
    peak: int = 0  # bytes by which a fresh process grew at most
    held: int = 0  # bytes by which it had grown between forward and backward


@dataclass(frozen=True)
class MemoryStudy:
    """The rows by mode, and the depth sweep and the budget if they were asked for."""

    workload: Workload
    rows: dict[str, MemoryRow]
    depth: DepthSweep | None
    budget: BatchBudget | None
    seconds: float


def check_study(workload: Workload, options: StudyOptions) -> None:
    """Raise ValueError, before any work, if the network or the options do not suit the study."""
    if options.budget is not None and workload.batch < 4:
        raise ValueError(
            f"batch must be at least 4 with a budget, which measures half of it; got {workload.batch}"
        )
    for name in MEMORY_MODES:
        workload.build(MODES[name])


def run_study(workload: Workload, options: StudyOptions, announce: Callable[..., None]) -> MemoryStudy:
    """Measure a workload in all modes.

    Before each part of the work, `announce` is called with a description and the amount of work.

    Raises:
        ChildProcessError: a fresh process failed.
    """
    began = time.perf_counter()
    rows: dict[str, MemoryRow] = {}
    images, _ = workload.random_batch()
    for name in MEMORY_MODES:
        announce(f"counting: {name}", _COUNT)
        rows[name] = MemoryRow(workload.train_step(name).saved_bytes(images), Timing(name))
    train_in_turn(workload, options.rounds, rows, announce)
    for name, row in rows.items():
        announce(f"peak at batch {workload.batch}: {name}", _PROCESS)
        row.peak, row.held = growth(workload, name, workload.batch)
    budget = _fit(workload, rows, parse_bytes(options.budget), announce) if options.budget else None
    curves = None
    if options.depth:
        curves = sweep_depths(
            workload, options.depth, lambda name, depth: announce(f"depth {depth}: {name}", _COUNT)
        )
    return MemoryStudy(workload, rows, curves, budget, time.perf_counter() - began)


def train_in_turn(
    workload: Workload, rounds: int, rows: dict[str, MemoryRow], announce: Callable[..., None]
) -> None:
    """Train all modes side by side on batches that change, one step of each in a round.

    Fills in `timing.seconds` and `identical` of the rows.
    """
    torch.backends.cudnn.deterministic = True  # otherwise CUDA itself differs from run to run
    steps = {name: workload.train_step(name) for name in rows}
    for number, names in enumerate(rotate(list(rows), rounds)):
        images, labels = workload.random_batch(number)
        for name in names:
            announce(f"training: {name}")
            torch.manual_seed(number)  # dropout draws the same in every mode
            seconds = seconds_of(partial(steps[name], images, labels), 1, workload.device)
            rows[name].timing.seconds += [seconds] if number else []
        for name, row in rows.items():
            if reference := reference_of(name):
                own, other = steps[name].outcome(), steps[reference].outcome()
                same = own.keys() == other.keys() and all(torch.equal(own[key], other[key]) for key in own)
                row.identical = row.identical is not False and same


def _fit(
    workload: Workload, rows: dict[str, MemoryRow], budget: int, announce: Callable[..., None]
) -> BatchBudget:
    points: dict[str, tuple[Point, Point]] = {}
    for name, row in rows.items():
        first = workload.batch, row.peak
        batch = second_batch(first, budget)
        announce(f"peak at batch {batch}: {name}", 2 * _PROCESS)
        points[name] = first, (batch, growth(workload, name, batch).peak)
    return BatchBudget(budget, points, {name: largest_batch(pair, budget) for name, pair in points.items()})

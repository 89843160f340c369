"""The whole study: every mode counted, timed, compared and measured."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from qat.measure.memory.budget import Budget, Point, largest_batch, second_batch
from qat.measure.memory.case import Case
from qat.measure.memory.depth import Sweep, sweep
from qat.measure.memory.modes import MODES
from qat.measure.memory.process import growth
from qat.measure.memory.saved import saved
from qat.measure.memory.steps import Steps, train_in_turn

Advance = Callable[[str, float], None]
"""Told what comes next, and its share of the whole work (`work`)."""

_PROCESS = 6.0  # a fresh process takes as long as so many steps
_COUNT = 0.5  # as does a count of the saved bytes, a forward


@dataclass(frozen=True)
class Row:
    """One mode.

    Args:
        saved: bytes that autograd keeps between forward and backward, counted.
        steps: how long steps took, and whether they equalled the twin's.
        peak: bytes by which a fresh process grew at most.
        held: bytes by which it had grown between forward and backward.
    """

    saved: int
    steps: Steps
    peak: int
    held: int


@dataclass(frozen=True)
class Study:
    """What was asked for: the rows by mode, and the depth sweep and the budget where wanted."""

    case: Case
    rows: dict[str, Row]
    depth: Sweep | None
    budget: Budget | None
    seconds: float


def work(rounds: int, depths: Sequence[int], budget: bool) -> float:
    """The work that `run_study` reports in all, in steps."""
    processes = len(MODES) * (3 if budget else 1)
    return len(MODES) * (_COUNT + rounds) + _PROCESS * processes + _COUNT * (len(MODES) + 1) * len(depths)


def run_study(case: Case, rounds: int, depths: Sequence[int], budget: int | None, advance: Advance) -> Study:
    """Measure a case in all modes.

    Args:
        case: what is measured.
        rounds: training steps of each mode, of which the first is not timed.
        depths: of the sweep; none: no sweep.
        budget: bytes; None: nobody asks.
        advance: told before each part of the work.

    Raises:
        ValueError: the network cannot be built so.
        ChildProcessError: a fresh process failed.
    """
    began = time.perf_counter()
    bytes_saved = {}
    for name, mode in MODES.items():
        advance(f"counting: {name}", _COUNT)
        images = torch.rand(case.batch, *case.image, device=case.device)
        bytes_saved[name] = saved(case.build(mode), images, mode.packed)
    steps = train_in_turn(case, rounds, lambda name: advance(f"training: {name}", 1))
    rows = {}
    for name in MODES:
        advance(f"peak at batch {case.batch}: {name}", _PROCESS)
        grown = growth(case, name, case.batch)
        rows[name] = Row(bytes_saved[name], steps[name], grown.peak, grown.held)
    found = None if budget is None else _fit(case, rows, budget, advance)
    curves = sweep(case, depths, lambda *at: advance(f"depth {at[1]}: {at[0]}", _COUNT)) if depths else None
    return Study(case, rows, curves, found, time.perf_counter() - began)


def _fit(case: Case, rows: dict[str, Row], budget: int, advance: Advance) -> Budget:
    points: dict[str, tuple[Point, Point]] = {}
    for name, row in rows.items():
        first = case.batch, row.peak
        batch = second_batch(first, budget)
        advance(f"peak at batch {batch}: {name}", 2 * _PROCESS)
        points[name] = first, (batch, growth(case, name, batch).peak)
    largest = {name: largest_batch(pair, budget) for name, pair in points.items()}
    return Budget(budget, points, largest)

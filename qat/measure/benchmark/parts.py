"""The parts of the benchmark: each measures, and gives its tables and what a file is to keep of it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from qat.measure.benchmark import ops, scaling, startup, steps
from qat.measure.benchmark.candidate import Candidate
from qat.measure.benchmark.progress import showing
from qat.measure.benchmark.rounds import measure, turns
from qat.measure.benchmark.shares import profile_step
from qat.measure.benchmark.tables import Figures, scaling_table, shares_table, startup_table, timing_table
from qat.measure.benchmark.timing import Timing


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Args:
        shape: of the tensor in `ops`.
        sizes: elements of those in `scaling`.
        models: in `steps`; the last of them in `profile` and `startup`.
        batch_size: images a step.
        rounds: at least 1.
        device: `cpu` or a CUDA GPU.
        names: of the candidates of `ops` and `steps` that take part.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    models: tuple[str, ...]
    batch_size: int
    rounds: int
    device: torch.device
    names: frozenset[str]


@dataclass
class Outcome:
    """What a part found: tables for a person, plain values for a program, and what went wrong."""

    tables: list[Figures] = field(default_factory=list)
    results: Any = None
    errors: list[str] = field(default_factory=list)


def run_ops(settings: Settings) -> Outcome:
    """One fake-quantizer, forward and backward."""
    timings = _measure("ops", _chosen(ops.candidates(settings.shape, settings.device), settings), settings)
    shape = " x ".join(map(str, settings.shape))
    title = f"Fake-quantize forward and backward, {shape} floats, {ops.BITS} bits"
    return Outcome(
        [timing_table(title, timings, ops.REFERENCES)], _plain(timings, ops.REFERENCES), _errors(timings)
    )


def run_scaling(settings: Settings) -> Outcome:
    """Cost against size."""
    timings = {}
    for size in sorted(settings.sizes):
        missing = scaling.too_large(size, settings.device)
        if missing:
            timings[size] = [Timing(name, missing=missing) for name in scaling.NAMES]
        else:
            timings[size] = _measure(
                f"{size:,} elements", scaling.candidates(size, settings.device), settings
            )
    results = {str(size): _plain(row, [ops.FLOOR]) for size, row in timings.items()}
    every = [timing for row in timings.values() for timing in row]
    return Outcome([scaling_table(timings, ops.FLOOR)], results, _errors(every))


def run_steps(settings: Settings) -> Outcome:
    """One training step of each network."""
    outcome = Outcome(results={})
    for model in settings.models:
        every = steps.candidates(model, settings.batch_size, settings.device)
        timings = _measure(model, _chosen(every, settings), settings)
        title = f"One training step of {model}, W4A4, batch {settings.batch_size}, SGD"
        outcome.tables.append(timing_table(title, timings, steps.REFERENCES))
        outcome.results[model] = _plain(timings, steps.REFERENCES)
        outcome.errors += [f"{model}: {error}" for error in _errors(timings)]
    return outcome


def run_profile(settings: Settings) -> Outcome:
    """Where the time of a step goes."""
    model = settings.models[-1]
    images, targets = steps.random_batch(model, settings.batch_size, settings.device)
    modes = (steps.FLOAT, steps.OURS, steps.LEARNED)
    shares = []
    with showing("profile", len(modes)) as show:
        for name in modes:
            show(name)
            step = steps.train_in(steps.MODES[name], model, images, targets).call
            shares.append(profile_step(name, step, settings.rounds, settings.device))
    title = f"Where the time of a step of {model} goes, W4A4, batch {settings.batch_size}"
    return Outcome([shares_table(title, shares)], [asdict(row) for row in shares])


def run_startup(settings: Settings) -> Outcome:
    """What the first use costs."""
    model = settings.models[-1]
    with showing("startup", len(startup.MODES) * len(startup.CACHES)) as show:
        rows = startup.measure_startup(model, settings.batch_size, settings.device, show)
    title = (
        f"First use in a process, s: kernels, and steps over later ones; {model}, batch {settings.batch_size}"
    )
    results = [asdict(row) for row in rows]
    return Outcome([startup_table(title, rows)], results, [f"{r.name}: {r.error}" for r in rows if r.error])


PARTS: dict[str, Callable[[Settings], Outcome]] = {
    "ops": run_ops,
    "scaling": run_scaling,
    "steps": run_steps,
    "profile": run_profile,
    "startup": run_startup,
}
USUAL = ("ops", "scaling", "steps")
"""The parts of a benchmark that names none."""


def candidate_names() -> list[str]:
    """Of all candidates of `ops` and `steps`."""
    return [c.name for c in ops.candidates((1, 1), torch.device("cpu"))] + [*steps.MODES, *steps.PEERS]


def _chosen(candidates: Iterable[Candidate], settings: Settings) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.name in settings.names]


def _measure(name: str, candidates: Sequence[Candidate], settings: Settings) -> list[Timing]:
    with showing(name, turns(len(candidates), settings.rounds)) as show:
        return measure(candidates, settings.rounds, settings.device, show)


def _plain(timings: Sequence[Timing], references: Iterable[str]) -> list[dict[str, Any]]:
    known = {timing.name: timing for timing in timings if timing.seconds}
    rows = []
    for timing in timings:
        row = asdict(timing)
        if timing.seconds:
            ratios = {name: timing.ratio(known[name]) for name in references if name in known}
            row |= {"median": timing.median, "spread": timing.spread, "ratios": ratios}
        rows.append(row)
    return rows


def _errors(timings: Iterable[Timing]) -> list[str]:
    return [f"{timing.name}: {timing.error}" for timing in timings if timing.error]

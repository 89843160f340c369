"""What the report says of one setup, computed from its runs."""

import math
from itertools import zip_longest
from statistics import median

from qat.experiment.results import Result, Runs
from qat.report.spread import Spread

USUAL_TARGET = 0.9


def test_accuracy(runs: Runs) -> Spread:
    """Accuracy on the test set after the last epoch, a fraction."""
    return Spread.of(run["test"]["accuracy"] for run in runs)


def curve(runs: Runs, field: str) -> list[Spread]:
    """`field` after each epoch over the seeds; a run that ended earlier is absent from the later ones."""
    values = [[epoch[field] for epoch in run["epochs"]] for run in runs]
    return [
        Spread.of(value for value in epoch if value is not None)
        for epoch in zip_longest(*values, fillvalue=None)
    ]


def diverged(runs: Runs) -> list[int]:
    """The seeds whose loss was not finite at some epoch or in the test."""
    return [
        run["seed"]
        for run in runs
        if not all(
            math.isfinite(loss)
            for loss in (
                *(epoch[field] for epoch in run["epochs"] for field in ("train_loss", "val_loss")),
                run["test"]["loss"],
            )
        )
    ]


def seconds_per_epoch(runs: Runs) -> float:
    """The median over all epochs of all seeds: a first epoch that warms up does not count for more."""
    finite = [epoch["seconds"] for run in runs for epoch in run["epochs"] if math.isfinite(epoch["seconds"])]
    return median(finite) if finite else math.nan


def saved_bytes(runs: Runs) -> float:
    """Bytes that autograd keeps for the backward of one batch."""
    return Spread.of(run["saved_bytes"] for run in runs).mean


def target_accuracy(results: list[Result]) -> float:
    """The validation accuracy to which the epochs are counted.

    90 %, or, where no run reaches that, the highest multiple of 5 % that one reaches; 0 for none.
    """
    best = max((epoch["val_accuracy"] for run in results for epoch in run["epochs"]), key=_or_zero)
    return USUAL_TARGET if _or_zero(best) >= USUAL_TARGET else math.floor(_or_zero(best) * 20) / 20


def epochs_to(runs: Runs, target: float) -> list[int | None]:
    """For each seed the first epoch, counted from 1, whose validation accuracy is at least `target`."""
    return [
        next((n for n, epoch in enumerate(run["epochs"], 1) if epoch["val_accuracy"] >= target), None)
        for run in runs
    ]


def ratio(value: float, reference: float) -> float:
    """`value / reference`; NaN where that has no meaning."""
    return value / reference if reference > 0 else math.nan


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0

"""Results grouped by setup and point of the sweep; everything above works on these groups."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from statistics import median
from typing import Any

from qat.experiment.results import Result, Results
from qat.report.option import WIDTHS, Option
from qat.report.spread import SeedSpread
from qat.report.styles import SetupStyle, styles

Point = dict[str, Any]  # the values of swept options by their keys in the YAML file
DEFAULT_TARGET = 0.9
_FLOAT = 32  # bits


@dataclass(frozen=True)
class Group:
    """The runs of one setup at one point of the sweep, one for each seed.

    `point` holds the values of the swept options by key; it lacks those that do not concern the setup.
    """

    setup: str
    point: Point
    runs: list[Result]

    @property
    def is_float(self) -> bool:
        """Whether the model has no quantization, or 32 bits for weights and activations."""
        widths = (self.runs[0].settings.get("model") or {}).get("quantization") or {}
        return {widths.get(name, _FLOAT) for name in WIDTHS} == {_FLOAT}

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs."""
        return [run.seed for run in self.runs]

    @cached_property
    def accuracy(self) -> SeedSpread:
        """Accuracy on the test set after the last epoch, 0..1."""
        return SeedSpread.of(run.test.accuracy for run in self.runs)

    @cached_property
    def saved_bytes(self) -> float:
        """Bytes that autograd keeps for the backward of one batch."""
        return SeedSpread.of(run.saved_bytes for run in self.runs).mean

    @cached_property
    def seconds(self) -> float:
        """The median epoch of all seeds: a slow first epoch has no weight."""
        found = [epoch.seconds for run in self.runs for epoch in run.epochs if math.isfinite(epoch.seconds)]
        return median(found) if found else math.nan

    @cached_property
    def diverged(self) -> list[int]:
        """The seeds whose loss was not finite at some epoch or in the test."""
        return [run.seed for run in self.runs if not math.isfinite(_sum_of_losses(run))]

    @cached_property
    def parameters(self) -> list[str]:
        """The names of the recorded parameters, in the order of the network."""
        return list(dict.fromkeys(n for run in self.runs for n in (*run.gradient_norm, *run.displacement)))

    def rank(self) -> float:
        """The mean test accuracy, or a number below all of them where there is none."""
        return self.accuracy.mean if self.accuracy.count else -1.0

    def epochs_to(self, target: float) -> list[int | None]:
        """For each seed the first epoch, counted from 1, with at least this validation accuracy."""
        return [
            next((n for n, epoch in enumerate(run.epochs, 1) if epoch.val_accuracy >= target), None)
            for run in self.runs
        ]

    def curve(self, field: str) -> list[SeedSpread]:
        """A field of `Epoch` after each epoch; a run that ended earlier is absent from the later ones."""
        values = [[getattr(epoch, field) for epoch in run.epochs] for run in self.runs]
        return [SeedSpread.of(v for v in epoch if v is not None) for epoch in zip_longest(*values)]

    @cached_property
    def numbers(self) -> str:
        """The seeds and what each epoch measured but for its time, as text: NaN is not equal to itself."""
        return repr([(run.seed, [replace(epoch, seconds=0.0) for epoch in run.epochs]) for run in self.runs])

    def gradient(self, parameter: str) -> list[SeedSpread]:
        """L2 norm of the gradient in the first and the last epoch; empty where no run recorded it."""
        pairs = [run.gradient_norm[parameter] for run in self.runs if parameter in run.gradient_norm]
        return [SeedSpread.of(values) for values in zip(*pairs, strict=True)]

    def moved(self, parameter: str) -> SeedSpread | None:
        """L2 distance between first and last value; None where no run recorded it."""
        found = [run.displacement[parameter] for run in self.runs if parameter in run.displacement]
        return SeedSpread.of(found) if found else None


@dataclass(frozen=True)
class Groups:
    """All groups in the report's order: by setup, then by the values of the swept options.

    Args:
        every: the groups.
        options: the swept options.
        styles: how each setup is drawn.
        results: what the groups are made from.
    """

    every: list[Group]
    options: list[Option]
    styles: dict[str, SetupStyle]
    results: Results

    @cached_property
    def by_setup(self) -> dict[str, list[Group]]:
        """The groups of each setup."""
        found: dict[str, list[Group]] = {}
        for one in self.every:
            found.setdefault(one.setup, []).append(one)
        return found

    @cached_property
    def axis(self) -> Option:
        """The swept option over which figures are drawn: the numeric one with the most values."""
        return max(self.options, key=lambda option: (option.is_numeric, len(option.values)))

    @cached_property
    def parameters(self) -> list[str]:
        """Every parameter that some run recorded, in the order of the network."""
        return list(dict.fromkeys(name for one in self.every for name in one.parameters))

    @cached_property
    def target(self) -> float:
        """The validation accuracy to which epochs are counted.

        It is 90 %, or, where no run reaches that, the highest multiple of 5 % that one reaches; 0 for none.
        """
        every = [epoch.val_accuracy for run in self.results.runs for epoch in run.epochs]
        best = max((value for value in every if math.isfinite(value)), default=0.0)
        return DEFAULT_TARGET if best >= DEFAULT_TARGET else math.floor(best * 20) / 20

    @property
    def level(self) -> Group | None:
        """In a sweep over bits alone the float network, which has none; None where it has no accuracy."""
        if len(self.options) != 1 or not self.options[0].is_bits:
            return None
        return next(
            (one for one in self.every if one.is_float and not one.point and one.accuracy.count), None
        )

    def beside_float(self, one: Group, name: str) -> float:
        """`saved_bytes` or `seconds` of a group over those of the float network at its point, else NaN."""
        for other in self.every:
            if other.is_float and other.point.items() <= one.point.items():
                return ratio(getattr(one, name), getattr(other, name))
        return math.nan

    def at(self, point: Point) -> "Groups":
        """The groups at a point, with those that some of its options do not concern."""
        there = [
            one
            for one in self.every
            if all(one.point.get(key, value) == value for key, value in point.items())
        ]
        options = [option for option in self.options if option.key not in point]
        return replace(self, every=there, options=options)

    def detail(self) -> tuple["Groups", Point]:
        """The groups of the one point that is shown in detail, and this point; without a sweep all groups.

        Of the points with the most setups it is the one with the narrowest bits, then with the best accuracy.
        """
        full = [one.point for one in self.every if len(one.point) == len(self.options)]
        widths = [option for option in self.options if option.is_bits]

        def rank(point: Point) -> tuple[float, ...]:
            there = self.at(point).every
            narrow = (option.place(point[option.key]) for option in widths)
            return -len(there), *narrow, -max(map(Group.rank, there))

        point = min(full, key=rank, default={})
        return self.at(point), point

    def point_text(self, point: Point) -> str:
        """A point in a sentence: `2 bits, learning_rate 0.01`; empty for an empty point."""
        found = [(o.name, o.text(point[o.key])) for o in self.options if o.key in point]
        return ", ".join(
            f"{text} bit{'s' * (text != '1')}" if name == "bits" else f"{name} {text}" for name, text in found
        )


def group(results: Results) -> Groups:
    """Group the runs over their seeds."""
    every: list[Group] = []
    for run in results.runs:
        if not every or (every[-1].setup, every[-1].point) != (run.setup, run.sweep):
            every.append(Group(run.setup, run.sweep, []))
        every[-1].runs.append(run)
    options = [Option(key, values) for key, values in results.sweep.items()]
    setups = dict.fromkeys(run.setup for run in results.runs)
    return Groups(every, options, styles(setups, [plain for _, plain in results.equal]), results)


def ratio(value: float, reference: float) -> float:
    """`value / reference`; NaN where that has no meaning."""
    return value / reference if reference > 0 else math.nan


def _sum_of_losses(run: Result) -> float:
    return run.test.loss + sum(epoch.train_loss + epoch.val_loss for epoch in run.epochs)

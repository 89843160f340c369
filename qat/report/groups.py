"""Results grouped by setup and point of the sweep, and what is computed over the seeds of a group."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, zip_longest
from statistics import median
from typing import Any

import numpy as np

from qat.experiment.results import Result, Results
from qat.layers.config import FLOAT
from qat.report.option import WIDTHS, SweptOption
from qat.report.seed_spread import SeedSpread, ratio

Point = dict[str, Any]  # the values of swept options by their keys in the YAML file


@dataclass(frozen=True)
class Group:
    """The runs of one setup at one point of the sweep, one for each seed.

    `point` lacks the swept options that do not concern the setup.
    """

    setup: str
    point: Point
    runs: list[Result]

    @property
    def is_float(self) -> bool:
        """Whether the model has no quantization, or 32 bits for weights and activations."""
        widths = (self.runs[0].settings.get("model") or {}).get("quantization") or {}
        return {widths.get(name, FLOAT) for name in WIDTHS} == {FLOAT}

    @cached_property
    def accuracy(self) -> SeedSpread:
        """Accuracy on the test set after the last epoch, 0..1."""
        return SeedSpread([run.test.accuracy for run in self.runs])

    @property
    def saved_bytes(self) -> float:
        return SeedSpread([run.saved_bytes for run in self.runs]).mean

    @cached_property
    def seconds(self) -> float:
        """The median epoch of all seeds: a slow first epoch has no weight."""
        return median([epoch.seconds for run in self.runs for epoch in run.epochs])

    @property
    def diverged(self) -> int:
        """How many runs have a loss that was not finite in some epoch or in the test."""
        sums = [run.test.loss + sum(e.train_loss + e.val_loss for e in run.epochs) for run in self.runs]
        return sum(not math.isfinite(value) for value in sums)

    @property
    def rank(self) -> float:
        """The mean test accuracy; -1 without one."""
        return self.accuracy.mean if self.accuracy.finite else -1.0

    def epochs_to(self, target: float) -> list[int | None]:
        """For each seed the first epoch, counted from 1, with at least this validation accuracy."""
        reached = [[n for n, e in enumerate(r.epochs, 1) if e.val_accuracy >= target] for r in self.runs]
        return [min(epochs, default=None) for epochs in reached]

    def curve(self, field: str) -> list[SeedSpread]:
        """A field of `Epoch` after each epoch; a run that ended earlier is absent from the later ones."""
        values = [[getattr(epoch, field) for epoch in run.epochs] for run in self.runs]
        return [SeedSpread([v for v in epoch if v is not None]) for epoch in zip_longest(*values)]

    def learning(self, parameter: str) -> tuple[SeedSpread, SeedSpread, SeedSpread]:
        """L2 norm of the gradient in the first and in the last epoch, and the L2 distance moved."""
        norms = [run.gradient_norm[parameter] for run in self.runs if parameter in run.gradient_norm]
        moved = [run.displacement[parameter] for run in self.runs if parameter in run.displacement]
        return SeedSpread([n[0] for n in norms]), SeedSpread([n[1] for n in norms]), SeedSpread(moved)

    def health(self, layer: str, name: str) -> SeedSpread:
        """A statistic of a layer's quantizers after the last epoch; NaN is an epoch that trained in float."""
        series = [(run.health or {}).get(layer, {}).get(name, []) for run in self.runs]
        return SeedSpread([v for values in series for v in values[-1:] if math.isfinite(v)])

    @property
    def without_gradient(self) -> list[str]:
        """The parameters whose gradient was exactly 0 in the first and the last epoch."""
        return [n for n in self.runs[0].gradient_norm if all(s.is_zero for s in self.learning(n)[:2])]


@dataclass(frozen=True)
class Groups:
    """All groups, by setup, then by the values of the swept options."""

    every: list[Group]
    options: list[SweptOption]
    results: Results

    @cached_property
    def by_setup(self) -> dict[str, list[Group]]:
        """The groups of each setup."""
        return {name: list(found) for name, found in groupby(self.every, lambda one: one.setup)}

    @property
    def ranking(self) -> list[Group]:
        """The best group of each setup that has a finite test accuracy, the highest accuracy first."""
        best = [max(found, key=lambda one: one.rank) for found in self.by_setup.values()]
        return sorted((one for one in best if one.rank >= 0), key=lambda one: -one.rank)

    @property
    def axis(self) -> SweptOption:
        """The swept option over which figures are drawn: the one with the most values."""
        return max(self.options, key=lambda option: len(option.values))

    @property
    def parameters(self) -> list[str]:
        """Every parameter that some run recorded, in the order of the network."""
        return list(dict.fromkeys(name for one in self.every for name in one.runs[0].gradient_norm))

    @cached_property
    def target(self) -> float:
        """The validation accuracy to count epochs to: 90 %, or the highest multiple of 5 % reached."""
        every = SeedSpread([epoch.val_accuracy for run in self.results.runs for epoch in run.epochs])
        best = max(every.finite, default=0.0)
        return min(math.floor(best * 20) / 20, 0.9)

    def beside_float(self, one: Group, name: str) -> float:
        """`saved_bytes` or `seconds` of a group over those of the float network at its point, else NaN."""
        beside = [o for o in self.every if o.is_float and o.point.items() <= one.point.items()]
        return ratio(getattr(one, name), getattr(beside[0], name)) if beside else math.nan

    def points(self, one: Group) -> SeedSpread:
        """The test accuracy of a group less that of the setup `against`, seed by seed; empty without one."""
        name = self.results.listing.against
        beside = [o for o in self.every if o.setup == name and o.point.items() <= one.point.items()]
        if not beside or one.setup == name:
            return SeedSpread([])
        others = {run.seed: run.test.accuracy for run in beside[0].runs}
        return SeedSpread([r.test.accuracy - others[r.seed] for r in one.runs if r.seed in others])

    def shares_of_float(self, name: str) -> SeedSpread:
        """`beside_float` of the groups that are not float."""
        return SeedSpread([self.beside_float(one, name) for one in self.every if not one.is_float])

    def at(self, point: Point) -> "Groups":
        """The groups at a point, with those that some of its options do not concern."""
        there = [g for g in self.every if all(g.point.get(key, point[key]) == point[key] for key in point)]
        return replace(self, every=there, options=[o for o in self.options if o.key not in point])

    @cached_property
    def detail_point(self) -> Point:
        """Of the points with the most setups the narrowest bits, then the best accuracy."""

        def rank(point: Point) -> tuple[float, ...]:
            there = self.at(point).every
            widths = [float(np.prod(point[option.key])) for option in self.options if option.is_bits]
            return -len(there), *widths, -max(one.rank for one in there)

        return min((g.point for g in self.every if len(g.point) == len(self.options)), key=rank, default={})

    def point_text(self, point: Point) -> str:
        """A point in a sentence: ` at bits 2, learning_rate 0.01`; empty for an empty point."""
        texts = [f"{o.name} {o.text(point[o.key])}" for o in self.options if o.key in point]
        return f" at {', '.join(texts)}" if texts else ""


def group(results: Results) -> Groups:
    """Group the runs, which stand in order, over their seeds."""
    every = groupby(results.runs, lambda run: (run.setup, run.sweep))
    options = [SweptOption(key, values) for key, values in results.listing.sweep.items()]
    return Groups([Group(*key, list(runs)) for key, runs in every], options, results)

"""Setups that must be equal to the last bit: how far apart they are, and what one saves."""

import math
from dataclasses import dataclass
from functools import cached_property

from qat.experiment.results import Result
from qat.report.groups import Group, Groups, ratio
from qat.report.spread import short


@dataclass(frozen=True)
class Pair:
    """The groups of two setups at the same points, and their runs with the same seeds."""

    setup: str
    plain: str
    groups: list[tuple[Group, Group]]
    runs: list[tuple[Result, Result]]

    @cached_property
    def differences(self) -> dict[str, float | None]:
        """The largest difference of losses, weights and buffers; None where no run recorded any."""
        each = [(run, other) for pair in self.runs for run, other in (pair, pair[::-1])]
        found = [r.difference for r, other in each if r.difference and r.difference.to == other.setup]
        return {
            name: _largest([abs(getattr(difference, field)) for difference in found])
            for name, field in (("losses", "losses"), ("weights", "parameters"), ("buffers", "buffers"))
        }

    @cached_property
    def digests(self) -> list[bool]:
        """For each entry of the final states whether both runs have the same."""
        return [
            run.digests.get(key) == other.digests.get(key)
            for run, other in self.runs
            for key in {**run.digests, **other.digests}
        ]

    @property
    def compared(self) -> bool:
        """Whether some difference or digest was recorded."""
        return bool(self.digests) or any(value is not None for value in self.differences.values())

    @property
    def differ(self) -> list[str]:
        """In what the two differ, as parts of a sentence; empty where they are equal."""
        found = [f"{name} ({short(value)})" for name, value in self.differences.items() if value]
        unequal = self.digests.count(False)
        return [*found, *([f"{unequal} of {len(self.digests)} digests"] if unequal else [])]

    def cost(self, name: str) -> float:
        """`saved_bytes` or `seconds` of the setup over those of the plain one, the mean over the points."""
        shares = [ratio(getattr(one, name), getattr(other, name)) for one, other in self.groups]
        return math.fsum(shares) / len(shares)


def pairs(groups: Groups) -> list[Pair]:
    """Each pair that the comparison names, where both have a run with the same seed at the same point."""
    found = []
    for setup, plain in groups.results.equal:
        both = [
            (one, other)
            for one in groups.by_setup.get(setup, [])
            for other in groups.by_setup.get(plain, [])
            if one.point == other.point
        ]
        runs = [(a, b) for one, other in both for a in one.runs for b in other.runs if a.seed == b.seed]
        if runs:
            found.append(Pair(setup, plain, both, runs))
    return found


def _largest(values: list[float]) -> float | None:
    if not values:
        return None
    return math.nan if any(math.isnan(value) for value in values) else max(values)

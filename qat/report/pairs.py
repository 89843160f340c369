"""Setups that must be equal to the last bit: how far apart they are, and what the first one saves."""

from dataclasses import dataclass

from qat.report.groups import Groups
from qat.report.seed_spread import SeedSpread, ratio, short


@dataclass(frozen=True)
class Pair:
    """Two setups, of which `setup` is compared with `plain` over their runs with the same seed and point.

    Args:
        runs: how many runs of each were compared.
        differences: the largest of `losses`, `weights` and `buffers` as text; empty where none is recorded.
        digests: for each entry of the final states whether both runs have the same.
        unequal: in what the two differ, as parts of a sentence; empty where nothing recorded differs.
        saved_bytes, seconds: of `setup` over those of `plain`, the mean over the points.
    """

    setup: str
    plain: str
    runs: int
    differences: dict[str, str]
    digests: list[bool]
    unequal: list[str]
    saved_bytes: float
    seconds: float


def pairs(groups: Groups) -> list[Pair]:
    """Each pair that the comparison names, where both have a run with the same seed at the same point."""
    found = []
    for setup, plain in groups.results.equal:
        first, second = groups.by_setup.get(setup, []), groups.by_setup.get(plain, [])
        points = [(a, b) for a in first for b in second if a.point == b.point]
        runs = [(r, s) for a, b in points for r in a.runs for s in b.runs if r.seed == s.seed]
        each = [(r.difference, other) for pair in runs for r, other in zip(pair, (plain, setup), strict=True)]
        held = [difference for difference, other in each if difference and difference.to == other]
        differences = {}
        for name, field in (("losses", "losses"), ("weights", "parameters"), ("buffers", "buffers")):
            sizes = [abs(getattr(difference, field)) for difference in held]
            if sizes:  # NaN is the largest
                differences[name] = short(max(sizes, key=lambda size: (size != size, size)))
        digests = [r.digests.get(k) == s.digests.get(k) for r, s in runs for k in {**r.digests, **s.digests}]
        unequal = [f"{name} ({size})" for name, size in differences.items() if size != "0"]
        if not all(digests):
            unequal.append(f"{digests.count(False)} of {len(digests)} digests")
        kept = SeedSpread([ratio(a.saved_bytes, b.saved_bytes) for a, b in points]).mean
        time = SeedSpread([ratio(a.seconds, b.seconds) for a, b in points]).mean
        if runs:
            found.append(Pair(setup, plain, len(runs), differences, digests, unequal, kept, time))
    return found

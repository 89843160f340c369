"""Setups that must be equal to the last bit: how far apart they are, and what the first one saves."""

from typing import Any

from qat.report.groups import Groups
from qat.report.seed_spread import SeedSpread, ratio, short


def pairs(groups: Groups) -> list[dict[str, Any]]:
    """Compare the pairs that must be equal over their runs with the same seed at the same point.

    Returns:
        For each pair its names, `setup` and `plain`; the number of `runs`; by `losses`, `weights` and
        `buffers` the largest recorded `differences` as text; for each entry of the final states whether
        `digests` agree; in what the two are `unequal`; and the mean ratios of `saved_bytes` and `seconds`.
    """
    found = []
    for setup, plain in groups.results.listing.equal:
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
        unequal += [] if all(digests) else [f"{digests.count(False)} of {len(digests)} digests"]
        row = {"setup": setup, "plain": plain, "runs": len(runs), "differences": differences}
        row |= {"digests": digests, "unequal": unequal}
        for cost in ("saved_bytes", "seconds"):
            row[cost] = SeedSpread([ratio(getattr(a, cost), getattr(b, cost)) for a, b in points]).mean
        found += [row] if runs else []
    return found

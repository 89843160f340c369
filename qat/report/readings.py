"""What the numbers say, in sentences that are true for whatever results there are.

Names in backticks are code; both pages know how to write them.
"""

import math
from collections.abc import Sequence
from itertools import combinations, pairwise, takewhile

from qat.report.groups import USUAL_TARGET, Group, Groups, ratio
from qat.report.pairs import Pair, pairs
from qat.report.settings import is_mixed, same_and_different
from qat.report.spread import SeedSpread, joined, names, points, seeds_text, sentence

HELD = 2  # percentage points below float at which a setup no longer holds up
_COSTS = {"an epoch takes {} times the seconds": "seconds", "the backward keeps {} times the bytes": "saved_bytes"}


def headline(groups: Groups) -> str:
    """Who wins and by how much, who diverged, whether pairs are equal, and how many runs are missing."""
    text = sentence([*(_hold_up(groups) if _level(groups) else _ranking(groups)), *_diverged(groups)])
    for pair in pairs(groups):
        if pair.equal:
            kept = 100 * pair.cost("saved_bytes")
            text += f" `{pair.setup}` ends with the weights and buffers of `{pair.plain}` to the last bit"
            text += "." if math.isnan(kept) else f" and keeps {kept:.0f}\u00a0% of its activation bytes."
        elif pair.compared:
            text += f" WARNING: `{pair.setup}` and `{pair.plain}` differ, which they must not."
    missing = groups.results.missing
    return text + (f" Runs that are not finished: {missing}." if missing else "")


def curves_reading(groups: Groups) -> str:
    """The order after the last epoch, curves that are equal, and runs that diverged."""
    last = {one.setup: one.curve("val_accuracy")[-1] for one in groups.every}
    ranks = _ranks(last)
    if ranks:
        best = f"{_do(ranks[0], 'have')} the highest validation accuracy ({last[ranks[0][0]].percent()})"
        worst = f" and {names(ranks[-1])} the lowest ({last[ranks[-1][0]].percent()})"
        parts = [f"after the last epoch {best}{worst if len(ranks) > 1 else ''}"]
    else:
        parts = ["no run has a finite validation accuracy"]
    for one, other in combinations(groups.every, 2):
        if one.same_curves(other):
            parts.append(f"{names([one.setup, other.setup])} lie exactly on each other")
    return sentence([*parts, *_diverged(groups)])


def result_reading(groups: Groups) -> str:
    """Who reaches the target first and who never, and what the setups cost beside float."""
    reached = {}
    for name, found in groups.by_setup.items():
        epochs = [epoch for one in found for epoch in one.epochs_to(groups.target) if epoch]
        if epochs and groups.target:
            reached[name] = min(epochs)
    if reached:
        first = min(reached.values())
        why = f", the target because no run reaches {100 * USUAL_TARGET:.0f} %,"
        text = f"{100 * groups.target:.0f} % validation accuracy{why if groups.target < USUAL_TARGET else ''}"
        text += f" is first reached by {names(n for n in reached if reached[n] == first)} in epoch {first}"
        never = [name for name in groups.by_setup if name not in reached]
        parts = [text + (f", and never by {names(never)}" if never else "")]
    else:
        parts = ["no run reaches even 5 % validation accuracy, so no target is set"]
    for words, field in _COSTS.items():
        pairs_ = [(one, groups.reference(one)) for one in groups.every]
        shares = [(ratio(getattr(o, field), getattr(r, field)), o) for o, r in pairs_ if r and r is not o]
        ends = sorted(((share, one) for share, one in shares if math.isfinite(share)), key=lambda end: end[0])
        if ends:
            texts = [f"{share:.2f} ({_label(groups, one)})" for share, one in (ends[0], ends[-1])]
            parts.append(words.format(" to ".join(dict.fromkeys(texts))) + " of float")
    if all(len(one.runs) == 1 for one in groups.every):
        parts.append("with one seed each, how much chance moves these numbers is unknown")
    return sentence(parts)


def sweep_reading(groups: Groups) -> str:
    """How close each setup stays to float, which setups tie, where the best is at an end, and what is missing."""
    swept = {name: found for name, found in groups.by_setup.items() if any(one.point for one in found)}
    level, axis, parts = _level(groups), groups.axis, []
    for name, found in swept.items():
        low = [one for one in found if level and _is_below(one, level)]
        if low:
            at = joined(groups.point_text(one.point) for one in low)
            parts.append(f"`{name}` falls more than {HELD} points below float at {at}")
        elif level:
            parts.append(f"`{name}` stays within {HELD} points of float at each value")
        best = _best(found).point.get(axis.key)
        if axis.is_numeric and not axis.is_bits and best in (axis.values[0], axis.values[-1]):
            parts.append(f"the best {axis.name} of `{name}`, {axis.text(best)}, is at the end of its values")
    for one, other in combinations(swept, 2):
        if all(repr(a.accuracy) == repr(b.accuracy) for a, b in zip(swept[one], swept[other], strict=False)):
            parts.append(f"{names([one, other])} end at the same accuracies")
    most = max(len(found) for found in swept.values())
    seeds = max(len(one.runs) for found in swept.values() for one in found)
    for name, found in swept.items():
        if len(found) < most:
            parts.append(f"`{name}` has {len(found)} of {most} points")
        few = [groups.point_text(one.point) for one in found if len(one.runs) < seeds]
        parts += [f"`{name}` has fewer than {seeds} seeds at {joined(few)}"] if few else []
    return sentence([*parts, *_diverged(groups)])


def parameters_reading(groups: Groups) -> str:
    """Which setups leave parameters without a gradient, whether those moved, and which are left to learn."""
    complete, parts = [], []
    for one in groups.every:
        still = [n for n in one.parameters if (norms := one.gradient(n)) and all(s.is_zero for s in norms)]
        moved = [name for name in still if (way := one.moved(name)) and not way.is_zero]
        rest = [name for name in one.parameters if name not in still]
        text = f"under `{one.setup}` {len(still)} of {len(one.parameters)} parameters got a gradient of exactly 0"
        text += " in the first and the last epoch"
        if still and moved:
            parts.append(f"{text}, and {len(moved)} of those moved all the same ({_few(moved)})")
        elif still:
            parts.append(f"{text} and never moved, which leaves {_few(rest) if rest else 'nothing'} to learn")
        elif rest:
            complete.append(one.setup)
    if complete:
        parts.append(f"under {names(complete)} every parameter got a gradient")
    lost = [one.setup for one in groups.every if any(s.lost for n in one.parameters for s in one.gradient(n))]
    parts += [f"some gradients of {names(lost)} were not finite"] if lost else []
    return sentence(parts or ["no run recorded a parameter"])


def costs_reading(groups: Groups) -> str:
    """What quantization saves beside float, and what computes in float all the same."""
    same: dict[str, list[str]] = {}
    for one in groups.every:
        found = one.runs[0].summary
        if found and not one.is_float:
            size = f"{100 * ratio(found.weight_bytes, found.float_bytes):.1f}\u00a0% of float's weight bytes"
            work = f"{100 * ratio(found.bit_operations, found.float_bit_operations):.1f}\u00a0% of its bit operations"
            left = f", left in float: {_few(list(found.left_float))}" if found.left_float else ""
            same.setdefault(f"{size} and {work}{left}", []).append(one.setup)
    return sentence(f"{_do(setups, 'take')} {text}" for text, setups in same.items())


def pair_reading(pair: Pair) -> str:
    """Whether two setups that must be equal are, and what the first one costs."""
    both = f"`{pair.setup}` and `{pair.plain}`"
    where = seeds_text(sorted({run.seed for run, _ in pair.runs}))
    where += f" at {len(pair.groups)} points" if len(pair.groups) > 1 else ""
    different = [f"{name} ({value:.2g})" for name, value in pair.differences.items() if value]
    if not all(pair.digests):
        different.append(f"{pair.digests.count(False)} of {len(pair.digests)} digests of the final states")
    if not pair.compared:
        text = f"whether {both} are equal was not recorded ({where})"
    elif different:
        text = f"NOT EQUAL: {both} differ in {joined(different)} ({where})"
    elif pair.differences["losses"] is None:
        text = f"{both} end in the same state to the last bit ({where})"
    else:
        text = f"{both} are the same training to the last bit ({where})"
    costs = {"keeps {:.2f} times the bytes": "saved_bytes", "takes {:.2f} times the seconds": "seconds"}
    known = [words.format(pair.cost(name)) for words, name in costs.items() if math.isfinite(pair.cost(name))]
    return sentence([text, *([f"`{pair.setup}` {joined(known)}"] if known else [])])


def settings_reading(groups: Groups) -> str:
    """In what the setups differ, whether they had the same seeds, and whether the versions are the same."""
    parts = []
    if len(groups.by_setup) > 1:
        _, different = same_and_different(groups, "settings")
        apart = [name for name, values in different.items() if len(set(values.values())) > 1]
        if len(apart) > 3:  # float lacks all of `model.quantization`: its entries are named by their section
            apart = list(dict.fromkeys(".".join(name.split(".")[:2]) for name in apart))
        parts.append(f"the setups differ in {names(apart)} alone" if apart else "all setups have the same settings")
    mixed = dict.fromkeys(one.setup for one in groups.every if is_mixed(one))
    parts += [f"WARNING: the seeds of {names(mixed)} were trained with different settings"] if mixed else []
    seeds = {tuple(run.seed for run in one.runs) for one in groups.every}
    parts.append(seeds_text(seeds.pop()) + " each" if len(seeds) == 1 else "the groups had different seeds")
    _, versions = same_and_different(groups, "versions")
    parts.append(f"versions differ: {names(versions)}" if versions else "one set of versions for all runs")
    return sentence(parts)


def _ranking(groups: Groups) -> list[str]:
    """The setups by the test accuracy of their best point, each with its distance to the one above it."""
    best = {name: _best(found) for name, found in groups.by_setup.items()}
    spreads = {name: one.accuracy for name, one in best.items()}
    ranks = _ranks(spreads)
    if not ranks:
        return ["no setup has a finite test accuracy"]

    def result(rank: list[str]) -> str:
        at = groups.point_text(best[rank[0]].point)
        return spreads[rank[0]].percent() + (f" at {at}" if at else "")

    parts = [f"{_do(ranks[0], 'have')} the highest test accuracy, {result(ranks[0])}"]
    for above, here in pairwise(ranks if len(ranks) <= 4 else ranks[:2]):
        one, other = spreads[above[0]], spreads[here[0]]
        gap = f"{points(one.mean - other.mean)} lower"
        if min(one.count, other.count) > 1:
            gap += ", within the spread" if one.overlaps(other) else ", beyond the spread"
        parts.append(f"{_do(here, 'follow')} with {result(here)}, {gap}")
    if len(ranks) > 4:
        parts.append(f"{_do(ranks[-1], 'come')} last with {result(ranks[-1])}")
    return parts


def _hold_up(groups: Groups) -> list[str]:
    """Which setups stay close to float at the fewest bits."""
    level, axis = _level(groups), groups.axis
    assert level
    reach: dict[str, float] = {}
    for name, found in groups.by_setup.items():
        widest = sorted((one for one in found if one.point), key=lambda one: -axis.place(one.point[axis.key]))
        held = list(takewhile(lambda one: not _is_below(one, level), widest))
        if held:
            reach[name] = axis.place(held[-1].point[axis.key])
    limit = f"within {HELD} points of float ({level.accuracy.percent()})"
    if not reach:
        return [f"no setup stays {limit} at its widest bits"]
    best = [name for name in reach if reach[name] == min(reach.values())]
    bits = next(value for value in axis.values if axis.place(value) == reach[best[0]])
    return [f"{_do(best, 'hold')} up longest, {limit} down to {groups.point_text({axis.key: bits})}"]


def _level(groups: Groups) -> Group | None:
    """The float network that a sweep over bits alone does not concern, where it has a finite accuracy."""
    if len(groups.options) != 1 or not groups.options[0].is_bits:
        return None
    found = [one for one in groups.every if groups.reference(one) is one and not one.point]
    return found[0] if found and found[0].accuracy.count else None


def _is_below(one: Group, level: Group) -> bool:
    # Rounded: 0.97 - 0.95 is a little more than 0.02 in binary.
    return not one.accuracy.count or round(level.accuracy.mean - one.accuracy.mean, 9) > HELD / 100


def _best(found: list[Group]) -> Group:
    return max(found, key=lambda one: one.accuracy.mean if one.accuracy.count else -1.0)


def _ranks(spreads: dict[str, SeedSpread]) -> list[list[str]]:
    """The names with a finite mean, the highest first; those with equal spreads together."""
    ranks: list[list[str]] = []
    for name in sorted((n for n in spreads if spreads[n].count), key=lambda n: -spreads[n].mean):
        if ranks and spreads[name] == spreads[ranks[-1][0]]:
            ranks[-1].append(name)
        else:
            ranks.append([name])
    return ranks


def _diverged(groups: Groups) -> list[str]:
    """One part of a sentence for each setup with a loss that was not finite."""
    counts = {
        name: (sum(len(one.diverged) for one in found), sum(len(one.runs) for one in found))
        for name, found in groups.by_setup.items()
    }
    return [f"{lost} of {runs} run{'s' * (runs > 1)} of `{n}` diverged" for n, (lost, runs) in counts.items() if lost]


def _label(groups: Groups, one: Group) -> str:
    at = groups.point_text(one.point)
    return f"`{one.setup}`" + (f" at {at}" if at else "")


def _do(who: Sequence[str], verb: str) -> str:
    """Subject and verb: `a` follows; `a` and `b` follow."""
    one = "has" if verb == "have" else f"{verb}s"
    return f"{names(who)} {verb if len(who) > 1 else one}"


def _few(found: list[str]) -> str:
    return names(found) if len(found) <= 3 else f"{len(found)} others"

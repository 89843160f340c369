"""What the numbers say, in sentences that are true for whatever results there are.

Names in backticks are code. The past tense is the same for one setup and for several.
"""

import math
from itertools import pairwise, takewhile

from qat.report.groups import DEFAULT_TARGET, Group, Groups, ratio
from qat.report.pairs import Pair, pairs
from qat.report.settings import is_mixed, same_and_different
from qat.report.spread import SeedSpread, joined, names, points, seeds_text, sentence
from qat.report.tables import BAD, MARKED, Rows
from qat.training.health import LIMITS

HELD = 2  # percentage points below float at which a setup no longer holds up


def headline(groups: Groups) -> str:
    """Who won and by how much, who diverged, whether pairs are equal, and how many runs are missing."""
    level = groups.level
    text = sentence([*(_hold_up(groups, level) if level else _ranking(groups)), *_diverged(groups)])
    for pair in pairs(groups):
        if pair.differ:
            text += f" WARNING: `{pair.setup}` and `{pair.plain}` differ, which they must not."
        elif pair.compared:
            text += f" `{pair.setup}` equalled `{pair.plain}` to the last bit"
            kept = 100 * pair.cost("saved_bytes")
            text += f" and kept {kept:.0f}\u00a0% of its activation bytes." if math.isfinite(kept) else "."
    missing = groups.results.missing
    return text + (f" Runs that are not finished: {missing}." if missing else "")


def curves_reading(groups: Groups) -> str:
    """The order after the last epoch, curves that are equal, and runs that diverged."""
    last = {one.setup: one.curve("val_accuracy")[-1] for one in groups.every}
    ranks = _ranks(last)
    parts = ["no run had a finite validation accuracy"]
    if ranks:
        parts = [f"after the last epoch {names(ranks[0])} had the highest validation accuracy"]
        parts[0] += f" ({last[ranks[0][0]].percent()})"
        if len(ranks) > 1:
            parts[0] += f" and {names(ranks[-1])} the lowest ({last[ranks[-1][0]].percent()})"
    equal = _together({one.setup: one.numbers for one in groups.every})
    parts += [f"{names(setups)} lie exactly on each other" for setups in equal if len(setups) > 1]
    return sentence([*parts, *_diverged(groups)])


def result_reading(groups: Groups) -> str:
    """Who reached the target first and who never, and what the setups cost beside float."""
    reached = {}
    for name, found in groups.by_setup.items():
        epochs = [epoch for one in found for epoch in one.epochs_to(groups.target) if epoch]
        if epochs and groups.target:
            reached[name] = min(epochs)
    parts = ["no run reached even 5 % validation accuracy, so no target is set"]
    if reached:
        first = [name for name in reached if reached[name] == min(reached.values())]
        never = [name for name in groups.by_setup if name not in reached]
        why = f", the target because no run reached {100 * DEFAULT_TARGET:.0f} %,"
        text = (
            f"{100 * groups.target:.0f} % validation accuracy{why if groups.target < DEFAULT_TARGET else ''}"
        )
        text += f" was first reached by {names(first)} in epoch {reached[first[0]]}"
        parts = [text + (f", and never by {names(never)}" if never else "")]
    for noun, field in (("seconds", "seconds"), ("bytes", "saved_bytes")):
        shares = [(groups.beside_float(one, field), one.setup) for one in groups.every if not one.is_float]
        known = sorted((share for share in shares if math.isfinite(share[0])), key=lambda share: share[0])
        ends = dict.fromkeys(f"{share:.2f} (`{setup}`)" for share, setup in known[:1] + known[-1:])
        parts += [f"the {noun} were {' to '.join(ends)} times those of float"] if ends else []
    if all(len(one.runs) == 1 for one in groups.every):
        parts.append("with one seed each, how much chance moves these numbers is unknown")
    return sentence(parts)


def sweep_reading(groups: Groups) -> str:
    """How close each setup stayed to float, which tied, where the best is at an end, and what is missing."""
    swept = {name: found for name, found in groups.by_setup.items() if any(one.point for one in found)}
    axis, level = groups.axis, groups.level
    runs = {name: sum(len(one.runs) for one in found) for name, found in swept.items()}
    near, ends, few, results = {}, {}, {}, {}
    for name, found in swept.items():
        below = [axis.text(one.point[axis.key]) for one in found if level and _is_below(one, level)]
        if below:
            where = "each value" if len(below) == len(found) > 1 else f"{axis.name} {joined(below)}"
            near[name] = f"fell more than {HELD} points below float at {where}"
        elif level:
            near[name] = f"stayed within {HELD} points of float"
        best = max(found, key=Group.rank).point.get(axis.key)
        if axis.is_numeric and not axis.is_bits and best in (axis.values[0], axis.values[-1]):
            ends[name] = f"did best at the end of the values, {axis.name} {axis.text(best)}"
        if runs[name] < max(runs.values()):
            few[name] = f"has {runs[name]} of {max(runs.values())} runs"
        results[name] = repr([(one.point, one.accuracy) for one in found])
    ties = [f"{names(tied)} ended at the same accuracies" for tied in _together(results) if len(tied) > 1]
    parts = [*_said(near), *_said(ends), *_said(few), *ties]
    return sentence([*(parts or [f"each setup has {max(runs.values())} runs"]), *_diverged(groups)])


def parameters_reading(groups: Groups) -> str:
    """Which setups left parameters without a gradient, whether those moved, and which were left to learn."""
    texts: dict[str, str] = {}
    for one in groups.every:
        still = [n for n in one.parameters if (norms := one.gradient(n)) and all(s.is_zero for s in norms)]
        moved = [name for name in still if (way := one.moved(name)) and not way.is_zero]
        rest = [name for name in one.parameters if name not in still]
        text = "every parameter got a gradient"
        if still:
            text = (
                f"{len(still)} of {len(one.parameters)} parameters got a gradient of exactly 0 in the first "
            )
            text += (
                f"and the last epoch and {f'{names(moved)} moved all the same' if moved else 'never moved'}"
            )
            text += (
                f", which left {names(rest)} to learn" if rest else ", so that nothing learned" * (not moved)
            )
        if one.parameters:
            texts[one.setup] = text
    parts = [f"under {names(setups)} {texts[setups[0]]}" for setups in _together(texts)]
    lost = [one.setup for one in groups.every if any(s.lost for n in one.parameters for s in one.gradient(n))]
    parts += [f"some gradients of {names(lost)} were not finite"] if lost else []
    return sentence(parts or ["no run recorded a parameter"])


def costs_reading(groups: Groups) -> str:
    """What quantization saves beside float, and what computes in float all the same."""
    texts = {}
    for one in groups.every:
        found = one.runs[0].summary
        if found and not one.is_float:
            size = 100 * ratio(found.weight_bytes, found.float_bytes)
            work = 100 * ratio(found.bit_operations, found.float_bit_operations)
            left = f", and left {names(found.left_float)} in float" if found.left_float else ""
            costs = f"{size:.1f}\u00a0% of float's weight bytes and {work:.1f}\u00a0% of its bit operations"
            texts[one.setup] = f"took {costs}{left}"
    return sentence(_said(texts))


def health_reading(table: Rows) -> str:
    """How many rows of the health table are marked, of which setups, and what may help."""
    marked = [row for row in table[1:] if any(cell.startswith(BAD) for cell in row)]
    if not marked:
        return "No layer is marked."
    setups = names(dict.fromkeys(row[0].strip("`") for row in marked))
    ill = [name for n, name in enumerate(MARKED, 2) if any(row[n].startswith(BAD) for row in marked)]
    advice = "".join(f" Where it is `{name}`, try {LIMITS[name].remedy}." for name in ill)
    return f"{len(marked)} of {len(table) - 1} rows are marked, of {setups}.{advice}"


def pair_reading(pair: Pair) -> str:
    """Whether two setups that must be equal are, and what the first one cost."""
    both = f"`{pair.setup}` and `{pair.plain}`"
    where = seeds_text(sorted({run.seed for run, _ in pair.runs}))
    where += f" at {len(pair.groups)} points" if len(pair.groups) > 1 else ""
    if pair.differ:
        text = f"NOT EQUAL: {both} differ in {joined(pair.differ)} ({where})"
    elif not pair.compared:
        text = f"whether {both} are equal was not recorded ({where})"
    else:
        what = "end in the same state" if pair.differences["losses"] is None else "are the same training"
        text = f"{both} {what} to the last bit ({where})"
    costs = {"kept {:.2f} times the bytes": "saved_bytes", "took {:.2f} times the seconds": "seconds"}
    known = [words.format(pair.cost(name)) for words, name in costs.items() if math.isfinite(pair.cost(name))]
    return sentence([text, *([f"`{pair.setup}` {joined(known)}"] if known else [])])


def settings_reading(groups: Groups) -> str:
    """In what the setups differ, whether they had the same seeds, and whether the versions are the same."""
    parts = []
    if len(groups.by_setup) > 1:
        _, different = same_and_different(groups, "settings")
        apart = [name for name, values in different.items() if len(set(values.values())) > 1]
        if len(apart) > 3:
            apart = list(dict.fromkeys(".".join(name.split(".")[:2]) for name in apart))  # their sections
        parts.append(
            f"the setups differ in {names(apart)} alone" if apart else "all setups have the same settings"
        )
    mixed = dict.fromkeys(one.setup for one in groups.every if is_mixed(one))
    parts += [f"WARNING: the seeds of {names(mixed)} were trained with different settings"] if mixed else []
    seeds = _together({_label(groups, one): repr(one.seeds) for one in groups.every})
    parts.append(
        f"{seeds_text(groups.every[0].seeds)} each" if len(seeds) == 1 else "the groups had different seeds"
    )
    _, versions = same_and_different(groups, "versions")
    parts.append(f"versions differ: {names(versions)}" if versions else "one set of versions for all runs")
    return sentence(parts)


def _ranking(groups: Groups) -> list[str]:
    """The setups by the test accuracy of their best point, each with its distance to the one above it."""
    best = {name: max(found, key=Group.rank) for name, found in groups.by_setup.items()}
    ranks = _ranks({name: one.accuracy for name, one in best.items()})
    if not ranks:
        return ["no setup had a finite test accuracy"]

    def result(rank: list[str]) -> str:
        at = groups.point_text(best[rank[0]].point)
        return best[rank[0]].accuracy.percent() + (f" at {at}" if at else "")

    parts = [f"{names(ranks[0])} had the highest test accuracy, {result(ranks[0])}"]
    for above, here in pairwise(ranks if len(ranks) <= 4 else ranks[:2]):
        one, other = best[above[0]].accuracy, best[here[0]].accuracy
        gap = f"{points(one.mean - other.mean)} lower"
        if min(one.count, other.count) > 1:
            gap += ", within the spread" if one.overlaps(other) else ", beyond the spread"
        parts.append(f"{names(here)} followed with {result(here)}, {gap}")
    if len(ranks) > 4:
        parts.append(f"{names(ranks[-1])} came last with {result(ranks[-1])}")
    return parts


def _hold_up(groups: Groups, level: Group) -> list[str]:
    """Which setups stayed close to float at the fewest bits."""
    axis = groups.axis
    reach: dict[str, Group] = {}
    for name, found in groups.by_setup.items():
        widest = sorted((one for one in found if one.point), key=lambda one: -axis.place(one.point[axis.key]))
        held = list(takewhile(lambda one: not _is_below(one, level), widest))
        reach |= {name: held[-1]} if held else {}
    limit = f"within {HELD} points of float ({level.accuracy.percent()})"
    if not reach:
        return [f"no setup stayed {limit} at its widest bits"]
    last = min(reach.values(), key=lambda one: axis.place(one.point[axis.key])).point
    best = [name for name, one in reach.items() if one.point == last]
    return [f"{names(best)} held up longest, {limit} down to {groups.point_text(last)}"]


def _is_below(one: Group, level: Group) -> bool:
    # Rounded: 0.97 - 0.95 is a little more than 0.02 in binary.
    return not one.accuracy.count or round(level.accuracy.mean - one.accuracy.mean, 9) > HELD / 100


def _ranks(spreads: dict[str, SeedSpread]) -> list[list[str]]:
    """The names with a finite mean, the highest first; those with equal spreads together."""
    ordered = sorted((name for name in spreads if spreads[name].count), key=lambda name: -spreads[name].mean)
    return _together({name: repr(spreads[name]) for name in ordered})


def _together(texts: dict[str, str]) -> list[list[str]]:
    """The names with equal texts together, in the order of the first of them."""
    found: dict[str, list[str]] = {}
    for name, text in texts.items():
        found.setdefault(text, []).append(name)
    return list(found.values())


def _said(texts: dict[str, str]) -> list[str]:
    """Each text once, with the setups that it is true for."""
    return [f"{names(setups)} {texts[setups[0]]}" for setups in _together(texts)]


def _diverged(groups: Groups) -> list[str]:
    """Which setups have runs with a loss that was not finite, and how many."""
    texts = {}
    for name, found in groups.by_setup.items():
        lost, runs = sum(len(one.diverged) for one in found), sum(len(one.runs) for one in found)
        if lost:
            texts[name] = f"diverged in {lost} of {runs} runs" if runs > 1 else "diverged"
    return _said(texts)


def _label(groups: Groups, one: Group) -> str:
    at = groups.point_text(one.point)
    return f"`{one.setup}`" + (f" at {at}" if at else "")

"""What the numbers say, in sentences: true for whatever results there are.

Names in backticks are code; both pages know how to write them.
"""

import math
from itertools import combinations

from qat.experiment.results import Result, Runs, by_setup
from qat.report.bits_reading import bits_headline
from qat.report.measures import (
    USUAL_TARGET,
    curve,
    diverged,
    epochs_to,
    ratio,
    saved_bytes,
    seconds_per_epoch,
    target_accuracy,
    test_accuracy,
)
from qat.report.pair import SAVING, Pair, pairs
from qat.report.spread import Spread, listing, points
from qat.report.widths import widths


def headline(results: list[Result]) -> str:
    """The outcome in one or two sentences."""
    setups = by_setup(results)
    if len(widths(results)) > 1:
        text = "; ".join([bits_headline(results).removesuffix("."), *diverged_parts(setups, "runs")]) + "."
        return text + _pair_part(results)
    accuracy = {name: test_accuracy(runs) for name, runs in setups.items()}
    if "zero" in setups and "ste" in setups:
        text = _zero_against_ste(accuracy["zero"], accuracy["ste"])
        if "float" in setups and accuracy["float"].count and accuracy["ste"].count:
            text += f"; float training ends at {_against(accuracy['float'], accuracy['ste'])}"
    else:
        ranked = sorted(
            (name for name in setups if accuracy[name].count), key=lambda name: -accuracy[name].mean
        )
        named = [f"`{name}` {accuracy[name].percent()}" for name in ranked]
        text = f"Test accuracy: {', '.join(named)}" if named else "No setup has a finite test accuracy"
    return "; ".join([text, *diverged_parts(setups)]) + "." + _pair_part(results)


def curves_reading(results: list[Result]) -> str:
    """What the curves show: the order at the last epoch, lines that coincide, runs that diverged."""
    setups = by_setup(results)
    last = {name: _last_accuracy(runs) for name, runs in setups.items()}
    ranked = sorted((name for name in setups if last[name].count), key=lambda name: -last[name].mean)
    if not ranked:
        parts = ["No run has a finite validation accuracy"]
    elif len(ranked) == 1:
        parts = [f"`{ranked[0]}` ends at {last[ranked[0]].percent()} validation accuracy"]
    else:
        best, worst = last[ranked[0]], last[ranked[-1]]
        top = [name for name in ranked if last[name] == best]
        bottom = [name for name in ranked if last[name] == worst]
        if best.mean == worst.mean:
            parts = [f"All setups end at the same validation accuracy, {best.percent()}"]
        else:
            parts = [
                f"After the last epoch {listing(top)} {_have(top)} the highest validation accuracy "
                f"({best.percent()}) and {listing(bottom)} the lowest ({worst.percent()})"
            ]
        following = next((name for name in ranked if last[name] != best), None)
        if following is not None and best.count > 1 and last[following].count > 1:
            verb = "overlap" if best.overlaps(last[following]) else "do not overlap"
            parts.append(f"the bands of {listing([top[0], following])} {verb} there")
    parts += [f"{listing(pair)} lie exactly on each other" for pair in coinciding(setups)]
    parts += diverged_parts(setups)
    return "; ".join(parts) + "."


def table_reading(results: list[Result]) -> str:
    """Who reaches the target first and who never, and what quantization costs beside float."""
    setups = by_setup(results)
    target = target_accuracy(results)
    reached = {name: [n for n in epochs_to(runs, target) if n is not None] for name, runs in setups.items()}
    ever = [name for name in setups if reached[name]]
    parts = []
    if not target or not ever:
        parts.append("No run reaches even 5 % validation accuracy, so no target is set")
    else:
        first = min(min(reached[name]) for name in ever)
        winners = [name for name in ever if min(reached[name]) == first]
        never = [name for name in setups if not reached[name]]
        text = f"{100 * target:.0f} % validation accuracy"
        if target < USUAL_TARGET:
            text += f", the target because no run reaches {100 * USUAL_TARGET:.0f} %,"
        text += f" is first reached by {listing(winners)} in epoch {first}"
        parts.append(text + (f", and never by {listing(never)}" if never else ""))
    if "float" in setups:
        for name in ("ste", *SAVING):
            if name in setups:
                time = ratio(seconds_per_epoch(setups[name]), seconds_per_epoch(setups["float"]))
                size = ratio(saved_bytes(setups[name]), saved_bytes(setups["float"]))
                if not math.isnan(time) and not math.isnan(size):
                    parts.append(
                        f"`{name}` takes {time:.2f} times float's seconds and {size:.2f} times its bytes"
                    )
    if all(len(runs) == 1 for runs in setups.values()):
        parts.append("with one seed each, how much chance moves these numbers is unknown")
    return "; ".join(parts) + "."


def coinciding(setups: dict[str, Runs]) -> list[tuple[str, str]]:
    """The pairs of setups whose curves are equal to the last bit for every seed."""
    curves = {
        # As text, because NaN is not equal to itself.
        name: repr([(run["seed"], [{**epoch, "seconds": 0} for epoch in run["epochs"]]) for run in runs])
        for name, runs in setups.items()
    }
    return [(a, b) for a, b in combinations(setups, 2) if curves[a] == curves[b]]


def diverged_parts(setups: dict[str, Runs], noun: str = "seeds") -> list[str]:
    """One part of a sentence for each setup with a loss that was not finite."""
    lost = {name: diverged(runs) for name, runs in setups.items()}
    return [
        f"{len(seeds)} of {len(setups[name])} {noun} of `{name}` diverged"
        if len(setups[name]) > 1
        else f"`{name}` diverged"
        for name, seeds in lost.items()
        if seeds
    ]


def _zero_against_ste(zero: Spread, ste: Spread) -> str:
    if not zero.count or not ste.count:
        return f"Test accuracy: `ste` {ste.percent()}, `zero` {zero.percent()}"
    if zero == ste:
        return f"`ste` and `zero` end at the same test accuracy, {ste.percent()}"
    numbers = f"{ste.percent()} test accuracy with it, {zero.percent()} with round's true zero gradient"
    if zero.overlaps(ste):
        return (
            f"It is not shown that the straight-through estimator helps: {numbers}, and the spreads overlap"
        )
    if ste.mean < zero.mean:
        return f"The straight-through estimator did worse than the zero gradient: {numbers}"
    gain = points(ste.mean - zero.mean)
    return f"The straight-through estimator gains {gain}: {numbers}"


def _against(float_: Spread, ste: Spread) -> str:
    gap = float_.mean - ste.mean
    if gap == 0:
        return f"{float_.percent()}, the same as `ste`"
    side = "above" if gap > 0 else "below"
    overlap = ", within the spread" if float_.count > 1 and ste.count > 1 and float_.overlaps(ste) else ""
    return f"{float_.percent()}, {points(gap)} {side} `ste`{overlap}"


def _pair_part(results: list[Result]) -> str:
    return "".join(_saving(pair) for pair in pairs(results) if pair.compared)


def _saving(pair: Pair) -> str:
    if not pair.identical:
        return f" WARNING: {pair.setup} and plain training differ, which they must not."
    text = f" {SAVING[pair.setup].capitalize()} changed no " + (
        "loss, weight or buffer" if pair.losses is not None else "weight or buffer"
    )
    if not math.isnan(pair.bytes_ratio):
        text += f" and kept {100 * pair.bytes_ratio:.0f}\u00a0% of the plain run's activation bytes"
    return text + "."


def _have(names: list[str]) -> str:
    return "have" if len(names) > 1 else "has"


def _last_accuracy(runs: Runs) -> Spread:
    return curve(runs, "val_accuracy")[-1]

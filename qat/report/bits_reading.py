"""What the widths show, in a table and in sentences that are true for whatever results there are."""

from qat.experiment.results import Result, Runs, Width, by_setup, width
from qat.report.measures import test_accuracy
from qat.report.settings import ABSENT
from qat.report.spread import Spread, listing
from qat.report.widths import at_width, bits_text, by_width, widths

HELD = 2  # percentage points below float at which a setup no longer holds up


def accuracy_table(results: list[Result]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the test accuracy of each setup at each width."""
    every = widths(results)
    rows = [
        [f"`{name}`", *(cells[bits].percent() if bits in cells else ABSENT for bits in every)]
        for name, cells in _cells(results).items()
    ]
    return ["setup", *(bits_text([bits]) for bits in every)], rows


def accuracy_caption(results: list[Result]) -> str:
    """What the table holds, and the accuracy of what has no bits."""
    text = "Test accuracy: mean of the seeds ± the largest distance of a seed from it."
    for name, runs in by_setup([run for run in results if width(run) is None]).items():
        text += f" `{name}`, which has no bits, ends at {test_accuracy(runs).percent()}."
    return text


def bits_headline(results: list[Result]) -> str:
    """Which setup holds up at the fewest bits, measured against float where there is float."""
    float_, cells = _float(results), _cells(results)
    if not float_.count:
        return _best_at_each_width(results) + "."
    reach = {name: _held(of, float_) for name, of in cells.items()}
    holding = {name: bits for name, bits in reach.items() if bits is not None}
    limit = f"{HELD} points of float ({float_.percent()})"
    if not holding:
        return f"No setup stays within {limit} at its widest, {bits_text([widths(results)[0]])}."
    narrowest = min(holding.values())
    best = [name for name, bits in holding.items() if bits == narrowest]
    text = f"within {limit} in the mean down to {bits_text([narrowest])}"
    if any(bits not in of for of in cells.values() for bits in widths(results)):
        text += " (of the widths that were run)"
    if len(cells) == 1:
        return f"`{best[0]}` holds up {text}."
    if len(best) == len(cells):
        return f"All setups hold up equally long, {text}."
    return f"{listing(best)} {'hold' if len(best) > 1 else 'holds'} up longest, {text}."


def bits_reading(results: list[Result]) -> str:
    """Where each setup falls off, which cells tie, which are missing."""
    float_, cells = _float(results), _cells(results)
    parts = []
    if float_.count:
        parts += _falls(cells, float_)
    else:
        why = "has no finite test accuracy" if "float" in by_setup(results) else "was not run"
        parts.append(f"`float` {why}, so that nothing says where a setup falls off")
    parts += _ties(cells)
    parts += _missing(results)
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def _float(results: list[Result]) -> Spread:
    return test_accuracy([run for run in results if run["setup"] == "float"])


def _cells(results: list[Result]) -> dict[str, dict[Width, Spread]]:
    """The test accuracy of each setup at each of its widths, the widest first."""
    cells = {name: by_width(runs) for name, runs in by_setup(results).items()}
    return {
        name: {bits: test_accuracy(runs) for bits, runs in of.items()} for name, of in cells.items() if of
    }


def _fallen(cell: Spread, float_: Spread) -> bool:
    # Rounded: 0.97 - 0.95 is a little more than 0.02 in binary.
    return not cell.count or round(float_.mean - cell.mean, 9) > HELD / 100


def _held(cells: dict[Width, Spread], float_: Spread) -> Width | None:
    """The narrowest width down to which a setup holds up at each one that it was run at."""
    reached = None
    for bits, cell in cells.items():
        if _fallen(cell, float_):
            break
        reached = bits
    return reached


def _falls(cells: dict[str, dict[Width, Spread]], float_: Spread) -> list[str]:
    fallen = {
        name: [bits for bits, cell in of.items() if _fallen(cell, float_)] for name, of in cells.items()
    }
    lost = {name: [bits for bits in fallen[name] if not of[bits].count] for name, of in cells.items()}
    below: dict[str, list[str]] = {}
    for name in cells:
        bits = [bits for bits in fallen[name] if bits not in lost[name]]
        all_ = len(bits) == len(cells[name]) > 1
        below.setdefault("each width" if all_ else bits_text(bits) if bits else "", []).append(name)
    parts = [
        f"{listing(names)} {_fall(names)} more than {HELD} points below float at {bits}"
        for bits, names in below.items()
        if bits
    ]
    parts += [f"`{name}` has no finite accuracy at {bits_text(bits)}" for name, bits in lost.items() if bits]
    held = [name for name in cells if not fallen[name]]
    if held:
        stay = "stay" if len(held) > 1 else "stays"
        parts.append(f"{listing(held)} {stay} within {HELD} points of float at each width run")
    return parts


def _fall(names: list[str]) -> str:
    return "fall" if len(names) > 1 else "falls"


def _ties(cells: dict[str, dict[Width, Spread]]) -> list[str]:
    """Groups of setups that end at the same accuracies for the same widths."""
    same: dict[str, list[str]] = {}
    for name, of in cells.items():
        same.setdefault(repr(of), []).append(name)  # as text, because NaN is not equal to itself
    return [
        f"{listing(names)} end at the same accuracy at each width"
        for names in same.values()
        if len(names) > 1
    ]


def _missing(results: list[Result]) -> list[str]:
    """The cells without a run, and those with fewer seeds than others."""
    every = widths(results)
    cells = {name: by_width(runs) for name, runs in by_setup(results).items()}
    cells = {name: of for name, of in cells.items() if of}
    most = max(len(_seeds(runs)) for of in cells.values() for runs in of.values())
    parts = []
    for name, of in cells.items():
        absent = [bits for bits in every if bits not in of]
        if absent:
            parts.append(f"`{name}` was not run at {bits_text(absent)}")
        for bits, runs in of.items():
            if len(_seeds(runs)) < most:
                parts.append(f"`{name}` has {len(_seeds(runs))} of {most} seeds at {bits_text([bits])}")
    return parts


def _seeds(runs: Runs) -> set[int]:
    return {run["seed"] for run in runs}


def _best_at_each_width(results: list[Result]) -> str:
    best: dict[str, list[Width]] = {}
    for bits in widths(results):
        means = {
            name: test_accuracy(runs).mean
            for name, runs in by_setup(at_width(results, bits)).items()
            if test_accuracy(runs).count and width(runs[0]) is not None
        }
        top = [name for name in means if means[name] == max(means.values())]
        best.setdefault(listing(top) if top else "nothing finite", []).append(bits)
    return "Highest test accuracy: " + ", ".join(f"{who} at {bits_text(at)}" for who, at in best.items())

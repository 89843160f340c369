"""The table of the results, for pages and for a terminal, and the cells that take some work."""

import math
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from qat.experiment.results import Results
from qat.report.groups import Group, Groups, group
from qat.report.seed_spread import ABSENT, short
from qat.training.health import COARSE

_TERMINAL = 80  # columns
# Shares above which a layer is marked. Weights are meant to stand still at the end, but not all of them.
_MARKED = {"clipped": 0.1, "unchanged": 0.9999, "oscillating": 0.2}


def result_table(groups: Groups) -> list[list[str]]:
    """A header, and a row for each group: swept options, accuracy, epochs to the target, time and memory.

    The points against a setup have a column where the comparison names one.
    """
    target = f"epochs to {100 * groups.target:.0f} %" if groups.target else "epochs to target"
    options = [option.name for option in groups.options]
    against = groups.results.listing.against
    points = [f"points against {against}"] if against else []
    rows = [["setup", *options, "test accuracy", *points, target, "s / epoch", "saved MB", "MB / float"]]
    for one in groups.every:
        point = [o.text(one.point[o.key]) if o.key in one.point else ABSENT for o in groups.options]
        epochs = epochs_text(one.epochs_to(groups.target)) if groups.target else ABSENT
        share = groups.beside_float(one, "saved_bytes")
        costs = [
            short(one.seconds),
            short(one.saved_bytes / 1e6),
            ABSENT if math.isnan(share) else f"{share:.2f}",
        ]
        gained = [groups.points(one).points()] if against else []
        rows.append([one.setup, *point, one.accuracy.percent(), *gained, epochs, *costs])
    return rows


def epochs_text(epochs: list[int | None]) -> str:
    """The epochs of all seeds: `3`, `2 to 4`, `never`, or `3, 1 never`."""
    reached = sorted({epoch for epoch in epochs if epoch is not None})
    if not reached:
        return "never"
    text = " to ".join(map(str, dict.fromkeys([reached[0], reached[-1]])))
    return text + (f", {epochs.count(None)} never" if None in epochs else "")


def comparison_table(results: Results) -> Table:
    """The table of the results for a terminal; where 80 columns may be too few, titles take several lines."""
    titles, *rows = result_table(group(results))
    is_wide = sum(max(map(len, column)) + 2 for column in zip(titles, *rows, strict=True)) > _TERMINAL
    loss = losses(group(results))
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        pad_edge=False,
        caption=f"loss: {loss}" if loss else None,
        caption_justify="left",
    )
    for n, title in enumerate(titles):
        broken = title.replace(" / ", "/\n").replace("_", "_\n").replace(" ", "\n", 1) if is_wide else title
        table.add_column(Text(broken), justify="right" if n else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def health_cells(one: Group, layer: str) -> list[str]:
    """The shares of `_MARKED` and both scales of a layer; what is not healthy begins with `! `."""
    rows = [row for run in one.runs if run.summary for row in run.summary.rows if row.name == layer]
    is_coarse = all(row.weight_bits <= COARSE for row in rows)
    cells = []
    for name, limit in _MARKED.items():
        share = one.health(layer, name)
        # On a fine grid codes swing with each step, and that does no harm.
        is_bad = share.high > limit and (is_coarse or name != "oscillating")
        cells.append(f"{'! ' * is_bad}{100 * share.high:.1f}\u00a0%" if share.values else ABSENT)
    for name in ("weight_scale", "activation_scale"):
        scale = one.health(layer, name)
        cells.append(f"! {short(scale.low)}" if scale.low <= 0 else str(scale))
    return cells


def losses(groups: Groups) -> str:
    """The training losses, such as `huber with delta 0.25`; with their setups if there are several."""
    found: dict[str, dict[str, None]] = {}
    for run in groups.results.runs:
        model = run.settings.get("model") or {}
        if loss := model.get("loss"):
            text = f"{loss} with delta {model.get('delta', 1.0):g}" if loss == "huber" else str(loss)
            found.setdefault(text, {})[run.setup] = None
    return "; ".join(
        text + (f" ({', '.join(setups)})" if len(found) > 1 else "") for text, setups in found.items()
    )


def settings(groups: Groups) -> dict[str, dict[str, str]]:
    """For each option of the runs its value by setup: several values where the runs of the setup differ."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for run in groups.results.runs:
        meaning = groups.results.listing.setups[run.setup]
        tree: dict[str, Any] = {"meaning": meaning} if meaning else {}
        if run.class_names:
            tree["class_names"] = run.class_names
        for name, value in _flat({**tree, "seed": run.seed, **run.settings, **run.versions}).items():
            found.setdefault(name, {}).setdefault(run.setup, {})[value] = None
    return {
        name: {setup: " / ".join(values.get(setup, [ABSENT])) for setup in groups.by_setup}
        for name, values in found.items()
        # Not a section that one setup lacks: its entries say so already.
        if not any(other.startswith(f"{name}.") for other in found)
    }


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings under dotted names, values as text."""
    found: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{name}.")
        else:
            items = value if isinstance(value, list) else [value] if value != {} else []
            texts = [str(item).lower() if isinstance(item, bool | None) else str(item) for item in items]
            found[prefix + name] = ", ".join(texts) or "none"
    return found

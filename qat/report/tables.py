"""The tables of the report, as rows of text of which the first is the header, and the terminal's table."""

import math
from collections.abc import Iterable
from itertools import pairwise

from rich import box
from rich.table import Table
from rich.text import Text

from qat.experiment.results import Results
from qat.report.groups import Group, Groups, group
from qat.report.pairs import Pair
from qat.report.settings import ABSENT, same_and_different
from qat.report.spread import SeedSpread, short
from qat.training.health import COARSE

Rows = list[list[str]]
BAD = "! "  # what a marked cell begins with
# Shares above which a layer is marked. Weights are meant to stand still at the end, but not all of them.
MARKED = {"clipped": 0.1, "unchanged": 0.9999, "oscillating": 0.2}
_TERMINAL = 80  # columns
_FLOAT = 32  # bits


def result_table(groups: Groups) -> Rows:
    """A row for each group: the swept options, accuracy, epochs to the target, time and memory."""
    target = f"epochs to {100 * groups.target:.0f} %" if groups.target else "epochs to target"
    options = [option.name for option in groups.options]
    rows = [["setup", *options, "test accuracy", target, "s / epoch", "saved MB", "MB / float"]]
    for one in groups.every:
        share = groups.beside_float(one, "saved_bytes")
        rows.append(
            [
                f"`{one.setup}`",
                *(o.text(one.point[o.key]) if o.key in one.point else ABSENT for o in groups.options),
                one.accuracy.percent(),
                epochs_text(one.epochs_to(groups.target)) if groups.target else ABSENT,
                short(one.seconds),
                short(one.saved_bytes / 1e6),
                ABSENT if math.isnan(share) else f"{share:.2f}",
            ]
        )
    return rows


def epochs_text(epochs: list[int | None]) -> str:
    """The epochs of all seeds: `3`, `2 to 4`, `never`, or `3, 1 never`."""
    reached = sorted(epoch for epoch in epochs if epoch is not None)
    if not reached:
        return "never"
    text = f"{reached[0]}" if reached[0] == reached[-1] else f"{reached[0]} to {reached[-1]}"
    missing = len(epochs) - len(reached)
    return f"{text}, {missing} never" if missing else text


def comparison_table(results: Results) -> Table:
    """The table of the results for a terminal; where 80 columns may be too few, titles take several lines."""
    rows = [[cell.strip("`") for cell in row] for row in result_table(group(results))]
    is_wide = sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) > _TERMINAL
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for n, title in enumerate(rows[0]):
        broken = title.replace(" / ", "/\n").replace("_", "_\n").replace(" ", "\n", 1) if is_wide else title
        table.add_column(Text(broken), justify="right" if n else "left", no_wrap=True)
    for above, row in pairwise(rows):
        if above[0] not in ("setup", row[0]) and rows[0][1] != "test accuracy":
            table.add_section()
        table.add_row(*map(Text, row))
    return table


def parameters_table(groups: Groups) -> Rows:
    """A row for each parameter: for each setup its gradient in the first and last epoch, and its way."""
    titles = (f"`{one.setup}` {title}" for one in groups.every for title in ("gradient", "moved"))
    rows = [["parameter", *titles]]
    for name in groups.parameters:
        row = [f"`{name}`"]
        for one in groups.every:
            norms, moved = [short(spread.mean) for spread in one.gradient(name)], one.moved(name)
            row.append("0" if norms == ["0", "0"] else " → ".join(norms) or ABSENT)
            row.append(short(moved.mean) if moved else ABSENT)
        rows.append(row)
    return rows


def costing(groups: Groups) -> Group | None:
    """The group whose layers are shown: the most accurate quantized one that has recorded them."""
    known = [one for one in groups.every if one.runs[0].summary and not one.is_float]
    return max(known, key=Group.rank, default=None)


def costs_table(groups: Groups) -> Rows:
    """The bits, operations and bytes of each layer, of all layers, and of all layers in float."""
    one = costing(groups)
    found = one.runs[0].summary if one else None
    assert found
    rows = [["layer", "kind", "bits", "rounding", "scale", "MACs", "bit operations", "bytes"]]
    for row in found.rows:
        bits = ["float" if width == _FLOAT else f"{width}" for width in (row.weight_bits, row.input_bits)]
        scale = dict.fromkeys(row.scale.split("/"))
        texts = [f"`{row.name}`", row.kind, " / ".join(bits), row.rounding, " / ".join(scale)]
        rows.append([*texts, *_counts(row.macs, row.bit_operations, row.weight_bytes)])
    quantized = _counts(found.macs, found.bit_operations, found.weight_bytes)
    floating = _counts(found.macs, found.float_bit_operations, found.float_bytes)
    return [*rows, ["all layers", *[""] * 4, *quantized], ["all in float", *[""] * 4, *floating]]


def health_table(groups: Groups) -> Rows:
    """A row for each setup and layer with a record of its quantizers in the last epoch."""
    rows = [["setup", "layer", *MARKED, "weight scale", "activation scale"]]
    for one in groups.every:
        for layer in dict.fromkeys(layer for run in one.runs for layer in run.health):
            shares = [_share(one, layer, name) for name in MARKED]
            scales = [_scale(_last(one, layer, name)) for name in ("weight_scale", "activation_scale")]
            rows.append([f"`{one.setup}`", f"`{layer}`", *shares, *scales])
    return rows


def pairs_table(pairs: list[Pair]) -> Rows:
    """A column for each pair of setups that must be equal."""
    rows = [["", *(f"`{pair.setup}` against `{pair.plain}`" for pair in pairs)]]
    for name in ("losses", "weights", "buffers"):
        values = [pair.differences[name] for pair in pairs]
        texts = ["not recorded" if value is None else short(value) for value in values]
        rows.append([f"largest difference in {name}", *texts])
    digests = (f"{pair.digests.count(False)} of {len(pair.digests)}" for pair in pairs)
    rows.append(["entries of the final states with other digests", *digests])
    for title, name in (("saved bytes, ratio", "saved_bytes"), ("seconds per epoch, ratio", "seconds")):
        rows.append([title, *(short(pair.cost(name)) for pair in pairs)])
    return rows


def own_settings(groups: Groups) -> Rows:
    """A column for each setup: its meaning, its seeds, and what not all runs share."""
    rows = [["", *(f"`{name}`" for name in groups.by_setup)]]
    if any(groups.results.meanings.values()):
        rows.append(["meaning", *(groups.results.meanings.get(name, "") for name in groups.by_setup)])
    seeds = [sorted({run.seed for one in found for run in one.runs}) for found in groups.by_setup.values()]
    rows.append(["seeds", *(", ".join(map(str, numbers)) for numbers in seeds)])
    for field in ("settings", "versions"):
        _, different = same_and_different(groups, field)
        rows += [[f"`{name}`", *values.values()] for name, values in different.items()]
    return rows


def shared_settings(groups: Groups) -> Rows:
    """The settings and versions that all runs share."""
    found = same_and_different(groups, "settings")[0] | same_and_different(groups, "versions")[0]
    return [["", "value"], *([f"`{name}`", value] for name, value in found.items())]


def _counts(*counts: int) -> Iterable[str]:
    return (f"{count:,}" for count in counts)


def _last(one: Group, layer: str, name: str) -> list[float]:
    """The value of each seed after its last epoch, where it has one; NaN is an epoch that trained float."""
    series = [run.health.get(layer, {}).get(name, []) for run in one.runs]
    return [values[-1] for values in series if values and math.isfinite(values[-1])]


def _share(one: Group, layer: str, name: str) -> str:
    values = _last(one, layer, name)
    if not values:
        return ABSENT
    # On a fine grid codes swing with every step, and that does no harm.
    rows = [row for run in one.runs if run.summary for row in run.summary.rows if row.name == layer]
    harmless = name == "oscillating" and any(row.weight_bits > COARSE for row in rows)
    return f"{BAD if max(values) > MARKED[name] and not harmless else ''}{100 * max(values):.1f}\u00a0%"


def _scale(values: list[float]) -> str:
    if not values:
        return ABSENT
    return short(SeedSpread.of(values).mean) if min(values) > 0 else f"{BAD}{short(min(values))}"

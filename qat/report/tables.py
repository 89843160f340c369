"""The tables of the report, and the one that the terminal shows."""

import math
from dataclasses import dataclass

from rich import box
from rich.table import Table as TerminalTable
from rich.text import Text

from qat.experiment.results import Results
from qat.report.groups import Group, Groups, group, ratio
from qat.report.pairs import Pair
from qat.report.settings import ABSENT, same_and_different
from qat.report.spread import SeedSpread, short
from qat.training.health import COARSE, LIMITS

BAD = "! "  # what a marked cell begins with
# Shares above which a layer is marked. Weights are meant to stand still at the end, but not all of them.
MARKED = {"clipped": 0.1, "unchanged": 0.9999, "oscillating": 0.2}
_FOLD = 24
_TERMINAL = 80  # columns
_FLOAT = 32  # bits


@dataclass(frozen=True)
class Table:
    """Cells as text; the first column is text, the others are numbers unless `text` says so."""

    caption: str
    header: list[str]
    rows: list[list[str]]
    text: bool = False

    @property
    def folded(self) -> bool:
        """Whether it begins folded: a long one would push everything below out of sight."""
        return len(self.rows) > _FOLD


def result_table(groups: Groups) -> Table:
    """A row for each group: the swept options, accuracy, epochs to the target, time and memory."""
    target = f"{100 * groups.target:.0f} %" if groups.target else "target"
    header = ["setup", *(option.name for option in groups.options), "test accuracy", f"epochs to {target}"]
    rows = []
    for one in groups.every:
        floating = groups.reference(one)
        share = ratio(one.saved_bytes, floating.saved_bytes) if floating else math.nan
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
    caption = (
        "Mean of the seeds ± the largest distance of a seed from it. Epochs count from 1 and validation "
        "accuracy decides them; seconds are the median epoch; saved MB (10⁶ bytes) are what autograd keeps "
        "for the backward of one batch."
    )
    return Table(caption, [*header, "s / epoch", "saved MB", "MB / float"], rows)


def epochs_text(epochs: list[int | None]) -> str:
    """The epochs of all seeds: `3`, `2 to 4`, `never`, or `3 (1 of 3 never)`."""
    reached = sorted(epoch for epoch in epochs if epoch is not None)
    if not reached:
        return "never"
    text = f"{reached[0]}" if reached[0] == reached[-1] else f"{reached[0]} to {reached[-1]}"
    missing = len(epochs) - len(reached)
    return f"{text} ({missing} of {len(epochs)} never)" if missing else text


def comparison_table(results: Results) -> TerminalTable:
    """The table of the results for a terminal."""
    found = result_table(group(results))
    table = TerminalTable(box=box.SIMPLE_HEAD)
    columns = zip(found.header, *found.rows, strict=True)
    widths = [max(len(cell.strip("`")) + 3 for cell in column) for column in columns]
    for number, title in enumerate(found.header):
        # Where the terminal may be too narrow the titles take two lines: the values must stay whole.
        broken = title.replace(" / ", " /\n") if " / " in title else title.replace(" ", "\n", 1)
        text = Text(broken if sum(widths) > _TERMINAL else title)
        table.add_column(text, justify="right" if number else "left", no_wrap=True)
    for n, row in enumerate(found.rows):
        if n and found.header[1] != "test accuracy" and row[0] != found.rows[n - 1][0]:
            table.add_section()
        table.add_row(*(Text(cell.strip("`")) for cell in row))
    return table


def parameters_table(groups: Groups) -> Table:
    """A row for each parameter: for each setup its gradient in the first and last epoch, and its way."""
    rows = []
    for name in groups.parameters:
        row = [f"`{name}`"]
        for one in groups.every:
            norms, moved = [short(spread.mean) for spread in one.gradient(name)], one.moved(name)
            row.append("0" if norms == ["0", "0"] else " → ".join(norms) or ABSENT)
            row.append(short(moved.mean) if moved else ABSENT)
        rows.append(row)
    header = [f"`{one.setup}` {title}" for one in groups.every for title in ("gradient", "moved")]
    caption = "L2 norms, means of the seeds: the gradient in the first → the last epoch, and the distance moved."
    return Table(caption, ["parameter", *header], rows)


def costs_table(groups: Groups) -> Table | None:
    """The layers of the most accurate quantized setup that has recorded them: bits, operations and bytes."""
    known = [one for one in groups.every if one.runs[0].summary and not one.is_float]
    best = max(known, key=lambda one: one.accuracy.mean if one.accuracy.count else -1.0, default=None)
    found = best.runs[0].summary if best else None
    if not best or not found:
        return None
    rows = [
        [
            *(f"`{row.name}`", row.kind, f"{_bits(row.weight_bits)} / {_bits(row.input_bits)}", row.rounding),
            " / ".join(dict.fromkeys(row.scale.split("/"))),
            *(f"{number:,}" for number in (row.macs, row.bit_operations, row.weight_bytes)),
        ]
        for row in found.rows
    ]
    for title, *numbers in (
        ("all layers", found.macs, found.bit_operations, found.weight_bytes),
        ("all in float", found.macs, found.float_bit_operations, found.float_bytes),
    ):
        rows.append([title, *[""] * 4, *(f"{number:,}" for number in numbers)])
    caption = (
        f"The layers of `{best.setup}`: bits and scales of weight / input, counts for one sample, bytes of the "
        "packed weight. Bit operations are MACs times both widths."
    )
    return Table(caption, ["layer", "kind", "bits", "rounding", "scale", "MACs", "bit operations", "bytes"], rows)


def health_table(groups: Groups) -> Table | None:
    """A row for each setup and layer with a record of its quantizers."""
    rows = [
        [
            *(f"`{one.setup}`", f"`{layer}`"),
            *(_share(one, layer, name) for name in MARKED),
            *(_scale(_last(one, layer, name)) for name in ("weight_scale", "activation_scale")),
        ]
        for one in groups.every
        for layer in dict.fromkeys(layer for run in one.runs for layer in run.health)
    ]
    caption = (
        "The last epoch, of all seeds the worst share and the mean scale. An exclamation mark stands where more "
        "than 10 % of the activations are clipped, no weight changed its code, more than 20 % of the weights of "
        "at most 4 bits swing between codes, or a scale is not positive."
    )
    header = ["setup", "layer", *MARKED, "weight scale", "activation scale"]
    return Table(caption, header, rows) if rows else None


def health_reading(table: Table) -> str:
    """How many rows are marked, of which setups, and what may help."""
    marked = [row for row in table.rows if any(cell.startswith(BAD) for cell in row)]
    if not marked:
        return "No layer is marked."
    setups = ", ".join(dict.fromkeys(row[0] for row in marked))
    ill = [name for n, name in enumerate(MARKED, 2) if any(row[n].startswith(BAD) for row in marked)]
    advice = "".join(f" Where it is `{name}`, try {LIMITS[name].remedy}." for name in ill)
    return f"{len(marked)} of {len(table.rows)} rows are marked, of {setups}.{advice}"


def pairs_table(pairs: list[Pair]) -> Table:
    """A column for each pair of setups that must be equal."""
    rows = [
        [f"largest difference in {name}", *(_difference(pair.differences[name]) for pair in pairs)]
        for name in ("losses", "weights", "buffers")
    ]
    digests = (f"{pair.digests.count(False)} of {len(pair.digests)}" for pair in pairs)
    rows.append(["entries of the final states with other digests", *digests])
    rows.append(["saved bytes, ratio", *(short(pair.cost("saved_bytes")) for pair in pairs)])
    rows.append(["seconds per epoch, ratio", *(short(pair.cost("seconds")) for pair in pairs)])
    header = ["", *(f"`{pair.setup}` against `{pair.plain}`" for pair in pairs)]
    return Table("Trainings that must be equal to the last bit.", header, rows, text=True)


def settings_tables(groups: Groups) -> list[Table]:
    """What each setup has for itself, and what all runs share."""
    rows = []
    if any(groups.results.meanings.values()):
        rows.append(["meaning", *(groups.results.meanings.get(name, "") for name in groups.by_setup)])
    seeds = [dict.fromkeys(run.seed for one in found for run in one.runs) for found in groups.by_setup.values()]
    rows.append(["seeds", *(", ".join(map(str, numbers)) for numbers in seeds)])
    shared = []
    for field in ("settings", "versions"):
        same, different = same_and_different(groups, field)
        rows += [[f"`{name}`", *values.values()] for name, values in different.items()]
        shared += [[f"`{name}`", value] for name, value in same.items()]
    header = ["", *(f"`{name}`" for name in groups.by_setup)]
    tables = [Table("What each setup has for itself.", header, rows, text=True)]
    return [*tables, Table("What all runs share.", ["", "value"], shared, text=True)] if shared else tables


def _bits(bits: int) -> str:
    return "float" if bits == _FLOAT else f"{bits}"


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


def _difference(value: float | None) -> str:
    return "not recorded" if value is None else short(value)

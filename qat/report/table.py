"""The table of the comparison, one row for each setup."""

import math

from rich import box
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from qat.experiment.results import Result, Width, by_setup, width
from qat.report.measures import (
    epochs_to,
    ratio,
    saved_bytes,
    seconds_per_epoch,
    target_accuracy,
    test_accuracy,
)
from qat.report.settings import ABSENT
from qat.report.spread import short
from qat.report.widths import at_width, short_bits, widths

NARROW = 80  # columns of a terminal
GAP = 3  # columns around each of the table's


def summary(results: list[Result]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table; the setups' names are marked as code."""
    return _header(target_accuracy(results)), _rows(results, target_accuracy(results))


def _header(target: float) -> list[str]:
    return [
        "setup",
        "test accuracy",
        f"epochs to {100 * target:.0f} %" if target else "epochs to target",
        "s / epoch",
        "saved MB",
        "MB / float",
    ]


def _rows(results: list[Result], target: float) -> list[list[str]]:
    setups = by_setup(results)
    floating = saved_bytes(setups["float"]) if "float" in setups else math.nan
    rows = []
    for name, runs in setups.items():
        size = saved_bytes(runs)
        share = ratio(size, floating)
        rows.append(
            [
                f"`{name}`",
                test_accuracy(runs).percent(),
                epochs_text(epochs_to(runs, target)) if target else ABSENT,
                short(seconds_per_epoch(runs)),
                short(size / 1e6),
                ABSENT if math.isnan(share) else f"{share:.2f}",
            ]
        )
    return rows


def epochs_text(epochs: list[int | None]) -> str:
    """The epochs of all seeds: `3`, `2 to 4`, `never`, or `3 (1 of 3 never)`."""
    reached = sorted(epoch for epoch in epochs if epoch is not None)
    if not reached:
        return "never"
    text = f"{reached[0]}" if reached[0] == reached[-1] else f"{reached[0]} to {reached[-1]}"
    missing = len(epochs) - len(reached)
    return f"{text} ({missing} of {len(epochs)} never)" if missing else text


def comparison_table(results: list[Result]) -> Table:
    """The same table for a terminal; of several widths a block for each, the widest first, and their bits."""
    several = widths(results) if len(widths(results)) > 1 else []
    header, rows = summary(results)
    blocks = [rows]
    if several:
        header = [header[0], "bits", *header[1:]]
        blocks = _blocks(results, several)
        rows = [row for block in blocks for row in block]
    table = Table(box=box.SIMPLE_HEAD)
    sizes = [max(len(row[column].strip("`")) for row in rows) for column in range(len(header))]
    wide = sum(max(len(title), size) + GAP for title, size in zip(header, sizes, strict=True))
    for column, title in enumerate(header):
        side: JustifyMethod = "left" if column == 0 else "right"
        # Where the terminal may be too narrow the titles take two lines: the values must stay whole.
        table.add_column(_in_two_lines(title) if wide > NARROW else title, justify=side, no_wrap=True)
    for block in blocks:
        for row in block:
            table.add_row(Text(row[0].strip("`")), *row[1:])
        table.add_section()
    return table


def _in_two_lines(title: str) -> str:
    return title.replace(" / ", " /\n") if " / " in title else title.replace(" ", "\n", 1)


def _blocks(results: list[Result], several: list[Width]) -> list[list[list[str]]]:
    """The rows of each width, and first of all those that have none."""
    target = target_accuracy(results)
    level = [run["setup"] for run in results if width(run) is None]
    blocks = []
    for number, bits in enumerate(several):
        rows = _rows(at_width(results, bits), target)
        if level and not number:
            blocks.append([_with_bits(row, ABSENT) for row in rows if row[0].strip("`") in level])
        blocks.append([_with_bits(row, short_bits(bits)) for row in rows if row[0].strip("`") not in level])
    return blocks


def _with_bits(row: list[str], bits: str) -> list[str]:
    return [row[0], bits, *row[1:]]

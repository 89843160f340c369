"""The table of the comparison, one row for each setup."""

import math

from rich import box
from rich.table import Table
from rich.text import Text

from qat.comparison.report.measures import (
    epochs_to,
    ratio,
    saved_bytes,
    seconds_per_epoch,
    target_accuracy,
    test_accuracy,
)
from qat.comparison.report.results import Result, by_setup
from qat.comparison.report.settings import ABSENT
from qat.comparison.report.spread import short


def summary(results: list[Result]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table; the setups' names are marked as code."""
    setups = by_setup(results)
    target = target_accuracy(results)
    floating = saved_bytes(setups["float"]) if "float" in setups else math.nan
    header = [
        "setup",
        "test accuracy",
        f"epochs to {100 * target:.0f} %" if target else "epochs to target",
        "s / epoch",
        "saved MB",
        "MB / float",
    ]
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
    return header, rows


def epochs_text(epochs: list[int | None]) -> str:
    """The epochs of all seeds: `3`, `2 to 4`, `never`, or `3 (1 of 3 never)`."""
    reached = sorted(epoch for epoch in epochs if epoch is not None)
    if not reached:
        return "never"
    text = f"{reached[0]}" if reached[0] == reached[-1] else f"{reached[0]} to {reached[-1]}"
    missing = len(epochs) - len(reached)
    return f"{text} ({missing} of {len(epochs)} never)" if missing else text


def comparison_table(results: list[Result]) -> Table:
    """The same table for a terminal."""
    header, rows = summary(results)
    table = Table(box=box.SIMPLE_HEAD)
    for column, title in enumerate(header):
        # In a narrow terminal the titles wrap, the values stay whole.
        width = max(len(row[column].strip("`")) for row in rows)
        table.add_column(title, justify="left" if column == 0 else "right", min_width=width)
    for row in rows:
        table.add_row(Text(row[0].strip("`")), *row[1:])
    return table

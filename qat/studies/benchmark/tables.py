"""The figures as tables for a terminal."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from qat.studies.benchmark.shares import KINDS, Shares
from qat.studies.benchmark.startup import CACHES, Startup
from qat.studies.benchmark.timing import Timing


def timing_table(title: str, timings: Sequence[Timing], references: Sequence[str]) -> Table:
    """Median, spread, and how many times as long as each reference: one row for each candidate.

    Args:
        title: above the table.
        timings: the rows.
        references: names of candidates; those that did not run are left out.
    """
    known = {timing.name: timing for timing in timings if timing.seconds}
    columns = [name for name in references if name in known]
    table = _table(title, "", "path", "ms", "spread", *(f"/ {name.partition(':')[0]}" for name in columns))
    for timing in timings:
        if timing.seconds:
            ratios = [f"{timing.ratio(known[name]):.2f}" for name in columns]
            figures = [milliseconds(timing.median), milliseconds(timing.spread), *ratios]
            table.add_row(Text(timing.name), timing.path, *figures)
    _remarks(table, timings)
    return table


def scaling_table(timings: dict[int, list[Timing]], reference: str) -> Table:
    """Milliseconds at each size, and beside them how many times as long as the reference."""
    names = [timing.name for timing in next(iter(timings.values()))]
    table = _table("Cost against size, forward and backward, ms (times the floor)", "elements", *names)
    for size, row in timings.items():
        known = {timing.name: timing for timing in row if timing.seconds}
        cells = []
        for timing in row:
            text = milliseconds(timing.median) if timing.seconds else "-"
            if timing.seconds and reference in known and timing.name != reference:
                text += f" ({timing.ratio(known[reference]):.1f})"
            cells.append(text)
        table.add_row(f"{size:,}", *cells)
    _remarks(table, [timing for row in timings.values() for timing in row])
    return table


def shares_table(title: str, shares: Iterable[Shares]) -> Table:
    """Milliseconds of one step, and the share of each kind of work."""
    table = _table(title, "", "ms", *KINDS)
    for row in shares:
        parts = [f"{100 * row.seconds[kind] / row.total:.0f} %" for kind in KINDS]
        table.add_row(row.name, milliseconds(row.total), *parts)
    return table


def startup_table(title: str, startups: Iterable[Startup]) -> Table:
    """Seconds over the later steps, with an empty cache and with a full one."""
    columns = [f"{what}, {cache}" for cache in CACHES for what in ("first step", "first half")]
    table = _table(title, "", *columns)
    for row in startups:
        if row.error:
            table.add_row(row.name, Text(f"failed: {row.error}", style="red"))
        else:
            figures = [f(cache) for cache in CACHES for f in (row.first, row.extra)]
            table.add_row(row.name, *(f"{figure:.1f}" for figure in figures))
    return table


def milliseconds(seconds: float) -> str:
    """Three digits: `0.0123`, `1.23`, `123`."""
    value = 1000 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _table(title: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 or column == "path" else "right")
    return table


def _remarks(table: Table, timings: Iterable[Timing]) -> None:
    """Below the table, why rows are absent."""
    reasons: dict[str, list[str]] = {}
    for timing in timings:
        if not timing.seconds:
            reason = timing.missing or f"failed: {timing.error}"
            names = reasons.setdefault(reason, [])
            names.extend([] if timing.name in names else [timing.name])
    table.caption = "\n".join(f"{'; '.join(names)}: {reason}" for reason, names in reasons.items())
    table.caption_justify = "left"

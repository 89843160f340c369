"""The figures as tables for a terminal."""

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from qat.studies.benchmark.shares import KINDS, Shares
from qat.studies.benchmark.startup import CACHES, Startup
from qat.studies.benchmark.timing import Timing


def timing_table(title: str, timings: Sequence[Timing], references: Mapping[str, str]) -> Table:
    """Median, spread between the quartiles in % of it, and how many times as long as each reference.

    Args:
        title: above the table.
        timings: one for each row.
        references: names of candidates, and what a column calls them; who did not run is left out.
    """
    known = {timing.name: timing for timing in timings if timing.seconds}
    columns = [name for name in references if name in known]
    table = _table(title, "", "path", "ms", "spread", *(f"/ {references[name]}" for name in columns))
    for timing in timings:
        if timing.seconds:
            ratios = [digits(timing.ratio(known[name])) for name in columns]
            figures = [milliseconds(timing.median), f"{100 * timing.spread / timing.median:.0f} %", *ratios]
            table.add_row(Text(timing.name), timing.path, *figures)
    _remarks(table, [f"{t.name}: {t.missing or 'failed: ' + t.error}" for t in timings if not t.seconds])
    return table


def scaling_table(timings: dict[int, list[Timing]], reference: str) -> Table:
    """Milliseconds at each size, and beside them how many times as long as the reference."""
    names = [timing.name for timing in next(iter(timings.values()))]
    table = _table("Cost against size: forward and backward in ms (times the floor)", "elements", *names)
    for size, row in timings.items():
        known = {timing.name: timing for timing in row if timing.seconds}
        cells = []
        for timing in row:
            text = milliseconds(timing.median) if timing.seconds else "-"
            if timing.seconds and reference in known and timing.name != reference:
                text += f" ({digits(timing.ratio(known[reference]))})"
            cells.append(text)
        table.add_row(f"{size:,}", *cells)
    reasons = [
        t.missing or f"{t.name} failed: {t.error}" for row in timings.values() for t in row if not t.seconds
    ]
    _remarks(table, list(dict.fromkeys(reasons)))
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
    return digits(1000 * seconds)


def digits(value: float) -> str:
    """Three of them: `0.0120`, `1.23`, `12.3`; of a larger number all before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def _table(title: str, *columns: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for number, column in enumerate(columns):
        left = number == 0 or column == "path"
        table.add_column(column, justify="left" if left else "right", no_wrap=left)
    return table


def _remarks(table: Table, lines: Sequence[str]) -> None:
    """Below the table, why figures are absent."""
    table.caption, table.caption_justify = Text("\n".join(lines)), "left"

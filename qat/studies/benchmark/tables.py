"""The figures as tables for a terminal."""

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from qat.studies.benchmark.shares import KINDS, Shares
from qat.studies.benchmark.startup import CACHES, STEPS, Startup
from qat.studies.benchmark.timing import Timing

ABSENT = "-"


def timing_table(title: str, timings: Sequence[Timing], references: Mapping[str, str]) -> Group:
    """Median, spread between the quartiles in % of it, and how many times as long as each reference.

    Args:
        title: above the table.
        timings: one for each row.
        references: names of candidates, and what a column calls them; who did not run is left out.
    """
    known = {timing.name: timing for timing in timings if timing.seconds}
    columns = [name for name in references if name in known]
    table = _table("", "path", "ms", "spread", *(f"/ {references[name]}" for name in columns))
    for timing in known.values():
        ratios = [digits(timing.ratio(known[name])) for name in columns]
        spread = f"{100 * timing.spread / timing.median:.0f} %"
        table.add_row(Text(timing.name), timing.path, digits(1000 * timing.median), spread, *ratios)
    return _below(title, table, [_absence(timing) for timing in timings if not timing.seconds])


def scaling_table(timings: dict[int, list[Timing]], reference: str) -> Group:
    """Milliseconds at each size, and beside them how many times as long as the reference."""
    table = _table("elements", *(timing.name for timing in next(iter(timings.values()))))
    remarks = []
    for size, row in timings.items():
        known = {timing.name: timing for timing in row if timing.seconds}
        cells = []
        for timing in row:
            cells.append(digits(1000 * timing.median) if timing.seconds else ABSENT)
            if timing.seconds and reference in known and timing.name != reference:
                cells[-1] += f" ({digits(timing.ratio(known[reference]))})"
        table.add_row(f"{size:,}", *cells)
        remarks += [timing.missing or _absence(timing) for timing in row if not timing.seconds]
    title = "Cost against size: forward and backward in ms (times the first column)"
    return _below(title, table, list(dict.fromkeys(remarks)))


def shares_table(title: str, shares: Iterable[Shares]) -> Group:
    """Milliseconds of one step, and the share of each kind of work."""
    table = _table("", "ms", *KINDS)
    for row in shares:
        parts = [f"{100 * row.seconds[kind] / row.total:.0f} %" for kind in KINDS]
        table.add_row(row.name, digits(1000 * row.total), *parts)
    return _below(title, table)


def startup_table(title: str, startups: Iterable[Startup]) -> Group:
    """Seconds for the kernels, and of the first steps over later ones, with an empty cache and a full one."""
    columns = [f"{cache}: {what}" for cache in CACHES for what in ("kernels", f"first {STEPS // 2} steps")]
    table = _table("", *columns)
    remarks = []
    for row in startups:
        if row.error:
            remarks.append(f"{row.name}: failed: {row.error}")
        else:
            uses = [row.uses[cache] for cache in CACHES]
            table.add_row(row.name, *(f"{second:.1f}" for use in uses for second in (use.kernels, use.extra)))
    return _below(title, table, remarks)


def digits(value: float) -> str:
    """Three of them: `0.0120`, `1.23`, `12.3`; of a larger number all before the point."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        left = number == 0 or column == "path"
        table.add_column(column, justify="left" if left else "right", no_wrap=left)
    return table


def _absence(timing: Timing) -> str:
    return f"{timing.name}: {timing.missing or 'failed: ' + timing.error}"


def _below(title: str, table: Table, remarks: Sequence[str] = ()) -> Group:
    """The table below its title, and below it why figures are absent."""
    return Group(Text(f"\n{title}", style="bold"), table, *map(Text, remarks))

"""The tables of the benchmark."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qat.measure.rounds import Timing
from qat.measure.shares import KINDS
from qat.measure.startup import CACHES, STEPS, extra_seconds
from qat.measure.tables import ABSENT, PATH, ResultTable, digits


def timing_table(title: str, timings: Sequence[Timing], references: Mapping[str, str]) -> ResultTable:
    """Median, spread between the quartiles in % of it, and the time relative to each reference.

    `references` gives the names of candidates, and how a column calls them; those that did not run have none.
    """
    known = {timing.name: timing for timing in timings if timing.seconds}
    columns = [name for name in references if name in known]
    table = ResultTable(title, ["", PATH, "ms", "spread", *(f"/ {references[name]}" for name in columns)])
    for timing in known.values():
        ratios = [digits(timing.ratio(known[name])) for name in columns]
        spread = f"{100 * timing.spread / timing.median:.0f} %"
        table.rows.append([timing.name, timing.path, digits(1000 * timing.median), spread, *ratios])
    table.remarks = [timing.absence for timing in timings if not timing.seconds]
    return table


def scaling_table(timings: Mapping[int, Sequence[Timing]], reference: str) -> ResultTable:
    """Milliseconds at each size, and in parentheses the time relative to the reference."""
    title = "Cost against size: forward and backward in ms (times the first column)"
    table = ResultTable(title, ["elements", *(timing.name for timing in next(iter(timings.values())))])
    for size, row in timings.items():
        known = {timing.name: timing for timing in row if timing.seconds}
        cells = []
        for timing in row:
            cells.append(digits(1000 * timing.median) if timing.seconds else ABSENT)
            if timing.seconds and reference in known and timing.name != reference:
                cells[-1] += f" ({digits(timing.ratio(known[reference]))})"
        table.rows.append([f"{size:,}", *cells])
        absent = [timing.missing or timing.absence for timing in row if not timing.seconds]
        table.remarks += dict.fromkeys(absent)
    return table


def shares_table(title: str, shares: Mapping[str, Mapping[str, float]]) -> ResultTable:
    """Milliseconds of one step, and the share of each kind of work, from the seconds by mode and kind."""
    table = ResultTable(title, ["", "ms", *KINDS])
    for name, seconds in shares.items():
        total = sum(seconds.values())
        parts = [f"{100 * seconds[kind] / total:.0f} %" for kind in KINDS]
        table.rows.append([name, digits(1000 * total), *parts])
    return table


def startup_table(title: str, startups: Iterable[Mapping[str, Any]]) -> ResultTable:
    """Seconds for the kernels, and of the first steps over later ones, with an empty and a filled cache."""
    columns = [f"{cache}: {what}" for cache in CACHES for what in ("kernels", f"first {STEPS // 2} steps")]
    table = ResultTable(title, ["", *columns])
    for row in startups:
        if row["error"]:
            table.remarks.append(f"{row['name']}: failed: {row['error']}")
        else:
            uses = [row["uses"][cache] for cache in CACHES]
            seconds = [second for use in uses for second in (use["kernels"], extra_seconds(use["steps"]))]
            table.rows.append([row["name"], *(f"{second:.1f}" for second in seconds)])
    return table

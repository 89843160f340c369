"""The figures of each part as a table: what its columns, rows and remarks are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from qat.measure.benchmark.shares import KINDS, Shares
from qat.measure.benchmark.startup import CACHES, STEPS, Startup
from qat.measure.benchmark.timing import Timing

ABSENT = "-"
PATH = "path"


@dataclass
class Figures:
    """A table in words.

    Args:
        title: above it.
        header: of the columns.
        rows: as many cells as columns.
        remarks: below it, why figures are absent.
    """

    title: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def timing_table(title: str, timings: Sequence[Timing], references: Mapping[str, str]) -> Figures:
    """Median, spread between the quartiles in % of it, and how many times as long as each reference.

    Args:
        title: above the table.
        timings: one for each row.
        references: names of candidates, and what a column calls them; who did not run is left out.
    """
    known = {timing.name: timing for timing in timings if timing.seconds}
    columns = [name for name in references if name in known]
    figures = Figures(title, ["", PATH, "ms", "spread", *(f"/ {references[name]}" for name in columns)])
    for timing in known.values():
        ratios = [digits(timing.ratio(known[name])) for name in columns]
        spread = f"{100 * timing.spread / timing.median:.0f} %"
        figures.rows.append([timing.name, timing.path, digits(1000 * timing.median), spread, *ratios])
    figures.remarks = [_absence(timing) for timing in timings if not timing.seconds]
    return figures


def scaling_table(timings: dict[int, list[Timing]], reference: str) -> Figures:
    """Milliseconds at each size, and beside them how many times as long as the reference."""
    title = "Cost against size: forward and backward in ms (times the first column)"
    figures = Figures(title, ["elements", *(timing.name for timing in next(iter(timings.values())))])
    for size, row in timings.items():
        known = {timing.name: timing for timing in row if timing.seconds}
        cells = []
        for timing in row:
            cells.append(digits(1000 * timing.median) if timing.seconds else ABSENT)
            if timing.seconds and reference in known and timing.name != reference:
                cells[-1] += f" ({digits(timing.ratio(known[reference]))})"
        figures.rows.append([f"{size:,}", *cells])
        absent = [timing.missing or _absence(timing) for timing in row if not timing.seconds]
        figures.remarks += dict.fromkeys(absent)
    return figures


def shares_table(title: str, shares: Iterable[Shares]) -> Figures:
    """Milliseconds of one step, and the share of each kind of work."""
    figures = Figures(title, ["", "ms", *KINDS])
    for row in shares:
        parts = [f"{100 * row.seconds[kind] / row.total:.0f} %" for kind in KINDS]
        figures.rows.append([row.name, digits(1000 * row.total), *parts])
    return figures


def startup_table(title: str, startups: Iterable[Startup]) -> Figures:
    """Seconds for the kernels, and of the first steps over later ones, with an empty cache and a full one."""
    columns = [f"{cache}: {what}" for cache in CACHES for what in ("kernels", f"first {STEPS // 2} steps")]
    figures = Figures(title, ["", *columns])
    for row in startups:
        if row.error:
            figures.remarks.append(f"{row.name}: failed: {row.error}")
        else:
            uses = [row.uses[cache] for cache in CACHES]
            seconds = [second for use in uses for second in (use.kernels, use.extra)]
            figures.rows.append([row.name, *(f"{second:.1f}" for second in seconds)])
    return figures


def digits(value: float) -> str:
    """Three of them: `0.0120`, `1.23`, `12.3`; of a larger number all before the point."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"


def _absence(timing: Timing) -> str:
    return f"{timing.name}: {timing.missing or 'failed: ' + timing.error}"

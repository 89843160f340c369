"""The study as tables for a terminal of 80 columns."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from qat.studies.memory.budget import Budget
from qat.studies.memory.depth import SQRT, Sweep
from qat.studies.memory.modes import FLOAT
from qat.studies.memory.steps import Steps, ratios
from qat.studies.memory.study import Row


def modes_table(rows: Mapping[str, Row]) -> Table:
    """One row for each mode: sizes and their shares of float's, step time, and whether it equals its twin."""
    titles = ["mode", "saved MB (share)", "held MB (share)", "peak MB (share)", "step / float's", "equal"]
    steps = {name: row.steps for name, row in rows.items()}
    lines = []
    for name, row in rows.items():
        sizes = [_size_and_share(getattr(row, f), getattr(rows[FLOAT], f)) for f in ("saved", "held", "peak")]
        lines.append([name, *sizes, time_ratio(steps, name), identical(row.steps)])
    return _table(titles, lines)


def depth_table(sweep: Sweep) -> Table:
    """One row for each mode and one column for each depth: MB an image that is kept.

    Then what one checkpointed segment saves anew, and what a block adds.
    """
    titles = ["MB an image, blocks:", *map(str, sweep.depths), "saved anew", "B an element"]
    lines = []
    for name, curve in sweep.curves.items():
        anew = list(dict.fromkeys(megabytes(size) for size in curve.recomputed if size))
        slope = "-" if name == SQRT else f"{curve.slope:.2f}"
        lines.append(
            [name, *map(megabytes, curve.saved), " to ".join(anew[:1] + anew[1:][-1:]) or "-", slope]
        )
    return _table(titles, lines)


def budget_table(budget: Budget) -> Table:
    """One row for each mode: the peaks measured, and the largest batch."""
    low, high = budget.batches
    title = f"largest batch in {megabytes(budget.bytes)} MB"
    titles = ["mode", f"peak MB at {low}", f"peak MB at {high}", title, "/ float's"]
    lines = []
    for name, peaks in budget.peaks.items():
        largest, floating = budget.largest[name], budget.largest[FLOAT]
        share = f"{largest / floating:.1f}" if largest and floating else "-"
        lines.append([name, *map(megabytes, peaks), fits(largest), share])
    return _table(titles, lines)


def megabytes(size: float) -> str:
    """Bytes as MB of a million, to three digits."""
    value = size / 1e6
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def share(size: float, floating: float) -> str:
    """A size as a share of float's; nothing where float's is not positive."""
    return f"{size / floating:.2f}" if floating > 0 else "-"


def time_ratio(steps: Mapping[str, Steps], name: str) -> str:
    """`1.34 ± 0.03`: the median over the rounds, and half the width of the middle half of them."""
    if name == FLOAT:
        return "1"
    spread = ratios(steps, name)
    return f"{spread.median:.2f} ± {(spread.high - spread.low) / 2:.2f}"


def identical(steps: Steps) -> str:
    """Whether the mode computes what its twin computes."""
    return {None: "-", True: "yes", False: "NO"}[steps.identical]


def _size_and_share(size: float, floating: float) -> str:
    return f"{megabytes(size)} ({share(size, floating)})"


def fits(batch: int | None) -> str:
    """The largest batch as text; BatchNorm needs two."""
    return "any" if batch is None else f"{batch:,}" if batch > 1 else "none"


def _table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    for column, title in enumerate(titles):
        # In a narrow terminal the titles wrap, the values stay whole.
        width = max(len(line[column]) for line in lines)
        table.add_column(title, justify="left" if column == 0 else "right", min_width=width)
    for line in lines:
        table.add_row(*map(Text, line), style="red" if "NO" in line else None)
    return table

"""The study as tables for a terminal of 80 columns."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from qat.measure.memory.budget import Budget
from qat.measure.memory.depth import SQRT, Sweep
from qat.measure.memory.modes import FLOAT
from qat.measure.memory.steps import Steps, ratios
from qat.measure.memory.study import Row

_MODES = (
    "Saved: counted by autograd. Held between forward and backward, peak of a step: growth of a fresh "
    "process. Equal: losses, gradients and state of every step are those of float or QAT plain, to the last "
    "bit."
)
_DEPTH = (
    "Stacks of equal residual blocks: MB an image that are kept; MB that the backward saves anew, of one "
    "segment at a time; bytes that a block adds for each element of its output."
)
_BUDGET = "The largest batch whose step takes {} MB on top of the process that holds the network."


def modes_table(rows: Mapping[str, Row]) -> Table:
    """One row for each mode: sizes and their shares of float's, step time, and whether it equals its twin."""
    titles = ["mode", "saved MB (share)", "held MB (share)", "peak MB (share)", "step / float's", "equal"]
    steps = {name: row.steps for name, row in rows.items()}
    lines = []
    for name, row in rows.items():
        sizes = [_size_and_share(getattr(row, f), getattr(rows[FLOAT], f)) for f in ("saved", "held", "peak")]
        lines.append([name, *sizes, time_ratio(steps, name), identical(row.steps)])
    return _table(_MODES, titles, lines)


def depth_table(sweep: Sweep) -> Table:
    """One row for each mode and one column for each depth: MB an image that is kept.

    Then what one checkpointed segment saves anew, and what a block adds.
    """
    titles = ["blocks", *map(str, sweep.depths), "anew", "slope"]
    lines = []
    for name, curve in sweep.curves.items():
        anew = list(dict.fromkeys(megabytes(size) for size in curve.recomputed if size))
        slope = "-" if name == SQRT else f"{curve.slope:.2f}"
        lines.append(
            [name, *map(megabytes, curve.saved), " to ".join(anew[:1] + anew[1:][-1:]) or "-", slope]
        )
    return _table(_DEPTH, titles, lines)


def budget_table(budget: Budget) -> Table:
    """One row for each mode: the peaks measured, and the largest batch."""
    titles = ["mode", "peak MB (batch)", "peak MB (batch)", "largest batch", "/ float's"]
    lines = []
    for name, points in budget.points.items():
        largest, floating = budget.largest[name], budget.largest[FLOAT]
        times = f"{largest / floating:.1f}" if largest and floating else "-"
        lines.append(
            [name, *(f"{megabytes(peak)} ({batch})" for batch, peak in points), fits(largest), times]
        )
    return _table(_BUDGET.format(megabytes(budget.bytes)), titles, lines)


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


def _table(text: str, titles: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0, title=text, title_justify="left", title_style="")
    for column, title in enumerate(titles):
        # Titles wrap, values stay whole.
        width = max(map(len, [*title.split(), *(line[column] for line in lines)]))
        table.add_column(title, justify="left" if column == 0 else "right", width=width)
    for line in lines:
        table.add_row(*map(Text, line), style="red" if "NO" in line else None)
    return table

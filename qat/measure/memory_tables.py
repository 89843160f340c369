"""The tables of the memory study."""

from collections.abc import Mapping

from qat.measure.budget import BatchBudget
from qat.measure.depth import SQRT, DepthSweep
from qat.measure.memory_study import MemoryRow, MemoryStudy
from qat.measure.modes import FLOAT
from qat.measure.rounds import quartiles
from qat.measure.tables import ABSENT, NO, ResultTable

SIZES = ("saved", "held", "peak")


def study_tables(study: MemoryStudy) -> list[ResultTable]:
    """The table of the modes, then those of the budget and of the depths, if they were measured."""
    tables = [modes_table(study.rows)]
    tables += [budget_table(study.budget)] if study.budget else []
    tables += [depth_table(study.depth)] if study.depth else []
    return tables


def modes_table(rows: Mapping[str, MemoryRow]) -> ResultTable:
    """One row per mode: sizes and their shares of float's, step time, and whether it equals its reference."""
    header = ["mode", *(f"{size} MB (share)" for size in SIZES), "step / float's", "equal"]
    table = ResultTable("Memory and time of a training step; shares are of float's", header)
    for name, row in rows.items():
        sizes = [(getattr(row, size), getattr(rows[FLOAT], size)) for size in SIZES]
        cells = [f"{megabytes(own)} ({share(own, of_float)})" for own, of_float in sizes]
        equal = {None: ABSENT, True: "yes", False: NO}[row.identical]
        table.rows.append([name, *cells, time_ratio(rows, name), equal])
    table.remarks = [
        "saved: what autograd keeps for the backward, counted; held between forward and backward, and peak: "
        "growth of a fresh process.",
        "equal: losses, gradients and state after each step are those of float or qat, to the last bit.",
    ]
    return table


def depth_table(sweep: DepthSweep) -> ResultTable:
    """One row per mode: MB per image kept at each depth, what the backward saves again, bytes per block."""
    header = ["blocks", *map(str, sweep.depths), "again", "slope"]
    table = ResultTable("Stacks of equal residual blocks, MB per image", header)
    for name, curve in sweep.curves.items():
        again = list(dict.fromkeys(megabytes(size) for size in curve.recomputed if size))
        slope = ABSENT if name == SQRT else f"{curve.slope:.2f}"
        span = " to ".join(again[:1] + again[1:][-1:]) or ABSENT
        table.rows.append([name, *map(megabytes, curve.saved), span, slope])
    table.remarks = [
        "again: what the backward saves again, for one segment at a time; slope: bytes that a block adds per "
        "element of its output."
    ]
    return table


def budget_table(budget: BatchBudget) -> ResultTable:
    """One row per mode: the peaks measured, and the largest batch."""
    header = ["mode", "peak MB (batch)", "peak MB (batch)", "largest batch", "/ float's"]
    table = ResultTable(f"The largest batch whose step takes at most {megabytes(budget.bytes)} MB", header)
    for name, points in budget.points.items():
        largest, of_float = budget.largest[name], budget.largest[FLOAT]
        peaks = [f"{megabytes(peak)} ({batch})" for batch, peak in points]
        ratio = f"{largest / of_float:.1f}" if largest and of_float else ABSENT
        table.rows.append([name, *peaks, fitting(largest), ratio])
    table.remarks = ["Memory is counted in addition to that of the process that holds the network."]
    return table


def megabytes(size: float) -> str:
    """Bytes as MB (10^6 bytes), to three digits."""
    value = size / 1e6
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def share(size: float, of_float: float) -> str:
    """A size as a share of float's, if that is positive."""
    return f"{size / of_float:.2f}" if of_float > 0 else ABSENT


def fitting(batch: int | None) -> str:
    """The largest batch as text; BatchNorm needs two images."""
    return "any" if batch is None else f"{batch:,}" if batch > 1 else "none"


def time_ratio(rows: Mapping[str, MemoryRow], name: str) -> str:
    """`1.34 ± 0.03`: the median over the rounds, and half the distance between the quartiles."""
    if name == FLOAT:
        return "1"
    low, middle, high = quartiles(rows[name].timing.ratios(rows[FLOAT].timing))
    return f"{middle:.2f} ± {(high - low) / 2:.2f}"

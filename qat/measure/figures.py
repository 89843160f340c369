"""The figures of the memory study."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from qat.measure.budget import BatchBudget
from qat.measure.depth import SQRT, DepthSweep
from qat.measure.memory_study import MemoryRow, MemoryStudy
from qat.measure.memory_tables import fitting, megabytes, share
from qat.measure.modes import FLOAT, PACKED, PACKED_CHECKPOINTED, QAT
from qat.measure.rounds import quartiles
from qat.whole_file import draft_of

INK, PAPER = "#1d2228", "#fefefe"
GREY, LIGHT = "#666c74", "#a9b0b8"
WIDTH = 912 / 72  # inches
PANELS = {
    "saved": "Saved by autograd, counted, MB, and share of float's",
    "held": "Held between forward and backward, measured",
    "peak": "Peak of a step, measured",
}
STYLE = Path(__file__).with_suffix(".mplstyle")

# Colours after Okabe and Ito (2008), which people with colour-vision deficiencies can tell apart.
LINES: dict[str, dict[str, Any]] = {
    FLOAT: {"color": GREY, "marker": "D"},
    # Lies under the line of QAT, and so is wider.
    "float, checkpointed": {"color": GREY, "marker": "^", "linestyle": (0, (3, 2)), "linewidth": 4.5},
    SQRT: {"color": GREY, "marker": "v", "linestyle": (0, (1, 1.2))},
    QAT: {"color": "#0072b2", "marker": "o"},
    PACKED: {"color": "#aa3377", "marker": "s"},
    "qat, checkpointed": {"color": "#d08400", "marker": "^", "linestyle": (0, (5, 2))},
    PACKED_CHECKPOINTED: {"color": "#00805c", "marker": "P"},
}
BARS = {name: line["color"] for name, line in LINES.items()} | {"float, checkpointed": LIGHT}


def save_figures(study: MemoryStudy, out: Path) -> list[Path]:
    """Write `modes.png`, and `depth.png` and `budget.png` if they were measured; else remove earlier ones."""
    with style.context(STYLE):
        figures = {
            "modes.png": modes_figure(study.rows),
            "depth.png": depth_figure(study.depth) if study.depth else None,
            "budget.png": budget_figure(study.budget) if study.budget else None,
        }
        for name, figure in figures.items():
            if figure is None:
                (out / name).unlink(missing_ok=True)
                continue
            with draft_of(out / name) as draft:  # 2 pixels for each point
                figure.savefig(draft, dpi=144, facecolor=PAPER, metadata={"Software": None})
    return [out / name for name, figure in figures.items() if figure]


def modes_figure(rows: Mapping[str, MemoryRow]) -> Figure:
    """Three panels of sizes with their shares of float's, and one of step times with their quartiles."""
    figure = Figure(figsize=(WIDTH, 6.4))
    *panels, times = figure.subplots(2, 2, sharey=True).flat
    for ax, (size, title) in zip(panels, PANELS.items(), strict=True):
        sizes = [getattr(row, size) for row in rows.values()]
        labels = [f"{megabytes(value)}   {share(value, getattr(rows[FLOAT], size))}" for value in sizes]
        draw_bars(ax, dict(zip(rows, [value / 1e6 for value in sizes], strict=True)), labels, 0.3)
        ax.set_title(title)
    spreads = [quartiles(row.timing.ratios(rows[FLOAT].timing)) for row in rows.values()]
    lows, medians, highs = np.transpose(spreads)
    whiskers = {"xerr": [medians - lows, highs - medians], "error_kw": {"ecolor": INK, "elinewidth": 1.6}}
    labels = [f"{median:.2f}" for median in medians]
    draw_bars(times, dict(zip(rows, medians, strict=True)), labels, 0.15, **whiskers)
    times.set_title("Time of a step / float's: median, middle half")
    return figure


def depth_figure(sweep: DepthSweep) -> Figure:
    """What is kept, and the same with what one checkpointed segment saves again; both logarithmic."""
    figure = Figure(figsize=(WIDTH, 5.6))
    kept, total = figure.subplots(1, 2, sharey=True)
    kept.set_title("Kept between forward and backward, MB an image")
    total.set_title("The same, and what one segment saves anew")
    for name, curve in sweep.curves.items():
        saved, again = np.divide([curve.saved, curve.recomputed], 1e6)
        kept.plot(sweep.depths, saved, label=name, **LINES[name])
        total.plot(sweep.depths, saved + again, **LINES[name])
    for ax in (kept, total):
        ax.set(xscale="log", yscale="log", xlabel="residual blocks", xticks=sweep.depths)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())
        ax.grid(visible=True)
    lines = kept.get_legend_handles_labels()
    figure.legend(*lines, loc="outside upper left", ncols=4, handlelength=4, fontsize=10.5)
    return figure


def budget_figure(budget: BatchBudget) -> Figure:
    """A bar for each mode; none if the peak did not grow with the batch."""
    figure = Figure(figsize=(WIDTH, 3.6))
    ax = figure.subplots()
    labels = [fitting(batch) for batch in budget.largest.values()]
    draw_bars(ax, {name: batch or 0 for name, batch in budget.largest.items()}, labels, 0.12)
    ax.set_title(f"Largest batch that trains in {megabytes(budget.bytes)} MB, images")
    return figure


def draw_bars(
    ax: Axes, lengths: Mapping[str, float], labels: Sequence[str], room: float, **options: Any
) -> None:
    """Horizontal bars, the first on top, with room for their labels: a share of the longest."""
    bars = ax.barh(list(lengths), list(lengths.values()), color=[BARS[name] for name in lengths], **options)
    ax.bar_label(bars, labels, padding=5)
    ax.margins(x=room)
    ax.grid(visible=True, axis="x")
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines["left"].set_visible(False)
    if not ax.yaxis_inverted():  # panels may share the axis
        ax.invert_yaxis()

"""The figures of the memory study."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from qat.measure.budget import BatchBudget
from qat.measure.depth import SQRT, Curve, DepthSweep
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


@dataclass(frozen=True)
class ModeStyle:
    """How a mode is drawn: colours of its line and bar, line style, marker, line width in points."""

    colour: str
    dashes: Any
    marker: str
    width: float = 2.0
    fill: str = ""


# Colours after Okabe and Ito (2008), which people with colour-vision deficiencies can tell apart.
STYLES = {
    FLOAT: ModeStyle(GREY, "solid", "D"),
    "float, checkpointed": ModeStyle(GREY, (0, (3, 2)), "^", 4.5, LIGHT),  # lies under the line of QAT
    SQRT: ModeStyle(GREY, (0, (1, 1.2)), "v"),
    QAT: ModeStyle("#0072b2", "solid", "o"),
    PACKED: ModeStyle("#aa3377", "solid", "s"),
    "qat, checkpointed": ModeStyle("#d08400", (0, (5, 2)), "^"),
    PACKED_CHECKPOINTED: ModeStyle("#00805c", "solid", "P"),
}


def save_figures(study: MemoryStudy, out: Path) -> list[Path]:
    """Write `modes.png`, and `depth.png` and `budget.png` if they were measured; else remove earlier ones."""
    written = []
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
            written.append(out / name)
    return written


def modes_figure(rows: Mapping[str, MemoryRow]) -> Figure:
    """Three panels of sizes with their shares of float's, and one of step times with their quartiles."""
    figure = Figure(figsize=(WIDTH, 6.4))
    *panels, times = figure.subplots(2, 2, sharey=True).flat
    for ax, (size, title) in zip(panels, PANELS.items(), strict=True):
        sizes = [getattr(row, size) for row in rows.values()]
        bars = draw_bars(ax, list(rows), [value / 1e6 for value in sizes], 0.3)
        labels = [f"{megabytes(value)}   {share(value, getattr(rows[FLOAT], size))}" for value in sizes]
        ax.bar_label(bars, labels, padding=5)
        ax.set_title(title)
    spreads = [quartiles(row.timing.ratios(rows[FLOAT].timing)) for row in rows.values()]
    draw_bars(
        times, list(rows), [median for _, median, _ in spreads], 0.15, max(high for *_, high in spreads)
    )
    for place, (low, median, high) in enumerate(spreads):
        times.plot([low, high], [place, place], color=INK, linewidth=1.6, solid_capstyle="butt")
        times.annotate(f"{median:.2f}", (high, place), (5, 0), textcoords="offset points", va="center")
    times.set_title("Time of a step / float's: median, middle half")
    return figure


def depth_figure(sweep: DepthSweep) -> Figure:
    """What is kept, and the same with what one checkpointed segment saves again; both logarithmic."""
    figure = Figure(figsize=(WIDTH, 5.6))
    kept, total = figure.subplots(1, 2, sharey=True)
    kept.set_title("Kept between forward and backward, MB an image")
    _draw_curves(kept, sweep, lambda curve: curve.saved)
    total.set_title("The same, and what one segment saves anew")
    _draw_curves(
        total, sweep, lambda curve: [a + b for a, b in zip(curve.saved, curve.recomputed, strict=True)]
    )
    lines = kept.get_legend_handles_labels()
    figure.legend(*lines, loc="outside upper left", ncols=4, handlelength=4, fontsize=10.5)
    return figure


def budget_figure(budget: BatchBudget) -> Figure:
    """A bar for each mode; none if the peak did not grow with the batch."""
    figure = Figure(figsize=(WIDTH, 3.6))
    ax = figure.subplots()
    bars = draw_bars(ax, list(budget.largest), [batch or 0 for batch in budget.largest.values()], 0.12)
    ax.bar_label(bars, [fitting(batch) for batch in budget.largest.values()], padding=5)
    ax.set_title(f"Largest batch that trains in {megabytes(budget.bytes)} MB, images")
    return figure


def draw_bars(
    ax: Axes, names: Sequence[str], lengths: Sequence[float], room: float, longest: float = 0
) -> BarContainer:
    """Horizontal bars, the first on top, with room for labels: a share of the longest."""
    bars = ax.barh(names, lengths, color=[STYLES[name].fill or STYLES[name].colour for name in names])
    ax.set_xlim(0, (1 + room) * (max(longest, *lengths) or 1))
    ax.grid(visible=True, axis="x")
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines["left"].set_visible(False)
    if not ax.yaxis_inverted():  # panels may share the axis
        ax.invert_yaxis()
    return bars


def _draw_curves(ax: Axes, sweep: DepthSweep, sizes: Callable[[Curve], list[float]]) -> None:
    for name, curve in sweep.curves.items():
        look = STYLES[name]
        megabytes = [size / 1e6 for size in sizes(curve)]
        line = {"color": look.colour, "linestyle": look.dashes, "marker": look.marker}
        ax.plot(sweep.depths, megabytes, label=name, linewidth=look.width, **line)
    ax.set(xscale="log", yscale="log", xlabel="residual blocks", xticks=sweep.depths)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(visible=True)

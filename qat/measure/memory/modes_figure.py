"""Memory and time of each mode, side by side."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from qat.measure.memory.drawing import INK, LOOKS, WIDTH, drawing_style, frame_bars
from qat.measure.memory.modes import FLOAT
from qat.measure.memory.steps import ratios
from qat.measure.memory.study import Row
from qat.measure.memory.table import megabytes, share

_SIZES = {
    "saved": "Saved by autograd, counted, MB, and share of float's",
    "held": "Held between forward and backward, measured",
    "peak": "Peak of a step, measured",
}


def modes_figure(rows: Mapping[str, Row]) -> Figure:
    """Three panels of sizes with their shares of float's, and one of step times with their middle halves."""
    with drawing_style():
        figure = Figure(figsize=(WIDTH, 6.4), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        *sizes, times = figure.subplots(2, 2, sharey=True).flat
        for ax, (field, title) in zip(sizes, _SIZES.items(), strict=True):
            _draw_sizes(ax, rows, field)
            ax.set_title(title, pad=10)
        _draw_times(times, rows)
        times.set_title("Time of a step / float's: median, middle half", pad=10)
    return figure


def _draw_sizes(ax: Axes, rows: Mapping[str, Row], field: str) -> None:
    sizes = [getattr(row, field) for row in rows.values()]
    bars = ax.barh(list(rows), [size / 1e6 for size in sizes], color=[LOOKS[name].fill for name in rows])
    floating = getattr(rows[FLOAT], field)
    ax.bar_label(bars, [f"{megabytes(size)}   {share(size, floating)}" for size in sizes], padding=5)
    frame_bars(ax, max(sizes) / 1e6, room=0.3)


def _draw_times(ax: Axes, rows: Mapping[str, Row]) -> None:
    steps = {name: row.steps for name, row in rows.items()}
    spreads = [ratios(steps, name) for name in rows]
    ax.barh(list(rows), [spread.median for spread in spreads], color=[LOOKS[name].fill for name in rows])
    widest = max(spread.high for spread in spreads)
    for place, spread in enumerate(spreads):
        ax.plot([spread.low, spread.high], [place, place], color=INK, linewidth=1.6, solid_capstyle="butt")
        ax.text(spread.high + 0.02 * widest, place, f"{spread.median:.2f}", va="center", fontsize=10)
    frame_bars(ax, widest, room=0.15)

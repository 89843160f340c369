"""Memory over depth, a line for each mode."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, NullLocator

from qat.measure.memory.depth import Curve, Sweep
from qat.measure.memory.drawing import LOOKS, WIDTH, drawing_style


def depth_figure(sweep: Sweep) -> Figure:
    """What is kept, and what is kept with what one checkpointed segment saves anew, both logarithmic."""
    with drawing_style():
        figure = Figure(figsize=(WIDTH, 5.6), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        kept, topped = figure.subplots(1, 2, sharey=True)
        _panel(kept, sweep, lambda curve: curve.saved)
        kept.set_title("Kept between forward and backward, MB an image", pad=10)
        _panel(
            topped, sweep, lambda curve: [a + b for a, b in zip(curve.saved, curve.recomputed, strict=True)]
        )
        topped.set_title("The same, and what one segment saves anew", pad=10)
        figure.legend(
            *kept.get_legend_handles_labels(),
            loc="outside upper left",
            ncols=4,
            handlelength=4,
            fontsize=10.5,
        )
    return figure


def _panel(ax: Axes, sweep: Sweep, sizes: Callable[[Curve], list[float]]) -> None:
    for name, curve in sweep.curves.items():
        look = LOOKS[name]
        megabytes = [size / 1e6 for size in sizes(curve)]
        ax.plot(
            sweep.depths,
            megabytes,
            label=name,
            color=look.colour,
            linestyle=look.dashes,
            marker=look.marker,
            linewidth=look.width,
        )
    ax.set(xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_xticks(sweep.depths)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("residual blocks")
    ax.grid(visible=True)

"""Test accuracy of each setup over the bits that it was trained with."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from qat.experiment.results import Result, Runs, Width, by_setup, width
from qat.report.curves_figure import (
    CLOSE_UP,
    NARROW,
    WIDE,
    accuracy_axes,
    draw_line,
    legend_handle,
)
from qat.report.drawing import drawing_style
from qat.report.measures import test_accuracy
from qat.report.palette import Look, looks
from qat.report.spread import Spread, listing
from qat.report.widths import bits_text, by_width, short_bits, widths


def bits_figure(results: list[Result], narrow: bool = False) -> Figure:
    """Accuracy over bits, whole and close up: the mean of the seeds and a band over them.

    The widest stands on the left; the scale is logarithmic. What has no bits, float, is a level line. A width
    at which a setup was not run breaks its line.

    Args:
        results: of several widths.
        narrow: panels below each other, for a phone.
    """
    setups, look, every = by_setup(results), looks(results), widths(results)
    with drawing_style():
        size = (NARROW / 72, 7.6) if narrow else (WIDE / 72, 4.7)
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.08))
        whole, close = figure.subplots(*((2, 1) if narrow else (1, 2))).flat
        for ax, title in ((whole, "Test accuracy, %"), (close, CLOSE_UP)):
            ax.set_title(title, pad=10)
            for name, runs in setups.items():
                _draw(ax, look[name], runs, every)
            _bits_axis(ax, every)
        accuracy_axes(whole, close, [run["test"]["accuracy"] for run in results])
        handles = [legend_handle(look[name], name) for name in setups]
        figure.legend(handles=handles, loc="outside upper left", ncols=2 if narrow else 5, handlelength=4.5)
    return figure


def bits_alt(results: list[Result]) -> str:
    """The text for a reader who does not see the lines; the table below holds their values."""
    setups = listing(by_setup(results)).replace("`", "")
    return (
        f"Two line charts of test accuracy at {bits_text(widths(results))} for {setups}: whole, and close up"
    )


def _place(bits: Width) -> float:
    return -(math.log2(bits[0]) + math.log2(bits[1])) / 2


def _draw(ax: Axes, look: Look, runs: Runs, every: list[Width]) -> None:
    places = [_place(bits) for bits in every]
    level = [run for run in runs if width(run) is None]
    if level:
        spread = test_accuracy(level)
        # From edge to edge, the markers out of sight: it was not run at any of these widths.
        draw_line(ax, look, [min(places) - 9, max(places) + 9], [spread] * 2)
    cells = by_width(runs)
    if cells:
        spreads = [test_accuracy(cells[bits]) if bits in cells else Spread.of([]) for bits in every]
        draw_line(ax, look, places, spreads)


def _bits_axis(ax: Axes, every: list[Width]) -> None:
    places = [_place(bits) for bits in every]
    room = 0.06 * (max(places) - min(places)) + 0.04
    ax.grid(visible=True, axis="y")
    ax.set_xlabel("bits of weights and activations")
    ax.set_xlim(min(places) - room, max(places) + room)
    ax.set_xticks(places, [short_bits(bits) for bits in every])

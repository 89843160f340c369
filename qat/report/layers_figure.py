"""How strong the gradient of each parameter was and how far the parameter went: one dot for each setup."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from qat.experiment.results import Result, Runs, by_setup
from qat.report.curves_figure import NARROW, WIDE
from qat.report.drawing import drawing_style
from qat.report.palette import BAND, INK, MUTED, ZONE, Look, looks
from qat.report.parameters import gradient, moved, parameter_names
from qat.report.spread import Spread, listing

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def layers_figure(results: list[Result], narrow: bool = False) -> Figure:
    """Gradient norms (hollow: first epoch, filled: last) beside displacements, a row for each parameter.

    The scale is logarithmic; exact zeros stand in a column of their own, and so does what is not finite.
    Over several seeds a dot is the mean; the line of a displacement goes from the lowest to the highest.

    Args:
        results: what `load_results` gives.
        narrow: the parameters' names above their rows instead of beside them, for a phone.
    """
    setups, names, look = by_setup(results), parameter_names(results), looks(results)
    lane = 9.0 if len(names) * len(setups) <= 80 else 6.5  # points between two setups of a row
    above = 15.0 if narrow else 4.0  # points between two rows
    pitch = above + lane * len(setups)
    in_legend = 3 if narrow else 7
    head = 47.0 + 17.0 * math.ceil((len(setups) + 2) / in_legend)
    foot = 30.0
    height = head + foot + pitch * max(len(names), 1)
    with drawing_style():
        figure = Figure(figsize=((NARROW if narrow else WIDE) / 72, height / 72))
        left = 0.02 if narrow else 0.26
        columns = figure.subplots(1, 2, sharey=True)
        figure.subplots_adjust(left, foot / height, 0.985, 1 - head / height, wspace=0.08)
        for ax, title, kind in zip(
            columns, ("Gradient norm", "Distance moved"), (gradient, moved), strict=True
        ):
            panel = _Panel(lane / 9 * 6)
            for row, name in enumerate(names):
                if row % 2:
                    ax.axhspan(row * pitch, (row + 1) * pitch, color=BAND, zorder=-2)
                for number, (setup, runs) in enumerate(setups.items()):
                    y = row * pitch + above + lane * number + (0 if narrow else -above / 2) + lane / 2
                    panel.add(y, look[setup], *_spreads(kind, runs, name))
            panel.draw(ax, narrow)
            ax.set_title(title, pad=22)
        _names(columns[0], names, pitch, narrow)
        columns[0].set_ylim(max(len(names), 1) * pitch, 0)
        figure.legend(
            handles=_handles(look, setups),
            loc="upper left",
            bbox_to_anchor=(0, 1),
            ncols=in_legend,
            handletextpad=0.2,
            columnspacing=1.2,
        )
    return figure


def layers_alt(results: list[Result]) -> str:
    """The text for a reader who does not see the dots; the table below the figure holds their values."""
    setups = listing(by_setup(results)).replace("`", "")
    return (
        f"Dot chart of {len(parameter_names(results))} parameters for {setups}: gradient norm in the first "
        "and the last epoch and distance moved, on logarithmic scales with a separate column for exact zeros"
    )


def _spreads(kind: Callable[[Runs, str], Any], runs: Runs, name: str) -> list[Spread]:
    found = kind(runs, name)
    return [] if found is None else list(found) if isinstance(found, tuple) else [found]


def _ends(spread: Spread) -> list[Spread]:
    return [Spread.of([spread.low]), spread, Spread.of([spread.high])]


@dataclass
class _Panel:
    """Dots collected first, because where the zeros stand depends on the smallest of all other values."""

    size: float
    dots: list[tuple[float, Look, list[Spread]]] = field(default_factory=list)

    def add(self, y: float, look: Look, *spreads: Spread) -> None:
        if spreads:
            self.dots.append((y, look, list(spreads)))

    def draw(self, ax: Axes, narrow: bool) -> None:
        values = [v for _, _, s in self.dots for x in s for v in (x.low, x.mean, x.high) if v > 0]
        low = math.floor(math.log10(min(values))) if values else -1
        high = max(math.ceil(math.log10(max(values))), low + 1) if values else 0
        width = (0.2 if narrow else 0.12) * (high - low)  # of the two columns beside the scale
        zero, lost = low - width, high + width
        some_lost = any(not x.count for _, _, s in self.dots for x in s)
        for middle in (zero, lost) if some_lost else (zero,):
            ax.axvspan(middle - width / 2, middle + width / 2, color=ZONE, zorder=-1)

        def place(value: float) -> float:
            return lost if math.isnan(value) else math.log10(value) if value > 0 else zero

        # One line of dots for each look: a long network has thousands, and single ones take seconds to draw.
        for look in dict.fromkeys(look for _, look, _ in self.dots):
            full: list[tuple[float, float]] = []
            hollow: list[tuple[float, float]] = []
            for y, _, spreads in (dot for dot in self.dots if dot[1] == look):
                reach = spreads if len(spreads) > 1 else _ends(spreads[0])
                places = [place(x.mean) for x in reach]
                if max(places) > min(places):
                    ax.hlines(y, min(places), max(places), color=look.light, linewidth=1)
                for number, x in enumerate(spreads):
                    if not x.count or x.mean:
                        (full if number == len(spreads) - 1 else hollow).append((place(x.mean), y))
                if any(x.count and not x.mean for x in spreads):
                    text = ax.text(zero, y, "0", color=look.light, fontsize=max(1.4 * self.size, 8))
                    text.set(weight="bold", horizontalalignment="center", verticalalignment="center")
            for dots, fill in ((full, look.light), (hollow, "none")):
                ax.plot(
                    [x for x, _ in dots],
                    [y for _, y in dots],
                    linestyle="none",
                    marker=look.marker,
                    markersize=self.size,
                    color=look.light,
                    markerfacecolor=fill,
                    markeredgewidth=1.1,
                )
        step = max(math.ceil((high - low) / (3 if narrow else 5)), 1)
        marks = {zero: "0"} | {
            float(n): "10" + str(n).translate(_SUPERSCRIPT) for n in range(low, high + 1, step)
        }
        if some_lost:
            marks[lost] = "NaN"
        ax.set_xticks(list(marks), list(marks.values()))
        ax.set_xlim(zero - width / 2, (lost if some_lost else high) + width / 2)
        ax.tick_params(axis="x", top=True, labeltop=True, length=0)
        ax.tick_params(axis="y", length=0, labelleft=False)
        ax.grid(visible=True, axis="x")
        ax.spines[["left", "bottom"]].set_visible(False)


def _names(ax: Axes, names: list[str], pitch: float, narrow: bool) -> None:
    for row, name in enumerate(names):
        x, y = (0.0, row * pitch + 9) if narrow else (-0.03, (row + 0.5) * pitch)
        text = ax.text(x, y, name, transform=ax.get_yaxis_transform(), va="center", color=INK)
        text.set(horizontalalignment="left" if narrow else "right", fontsize=9 if narrow else 10)


def _handles(look: dict[str, Look], setups: dict[str, Runs]) -> list[Line2D]:
    dots = [
        Line2D([], [], linestyle="none", label=name, color=look[name].light, marker=look[name].marker)
        for name in setups
    ]
    for label, fill in (("first epoch", "none"), ("last epoch", MUTED)):
        dots.append(
            Line2D([], [], linestyle="none", label=label, color=MUTED, marker="o", markerfacecolor=fill)
        )
    return dots

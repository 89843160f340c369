"""The figure of a sweep: test accuracy over the values of an option."""

from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from qat.report.drawing import MANY, Picture, add_legend, close_up, draw_line, heat_map, new_figure
from qat.report.groups import Group, Groups, Point
from qat.report.option import Option
from qat.report.spread import SeedSpread, joined
from qat.report.styles import MUTED, SetupStyle


def sweep(groups: Groups) -> Picture:
    """Accuracy over `groups.axis`, whole and close up; a row of panels for each value of the other options.

    A setup that the option does not concern is a level line, and a crossed point is one with a diverged run.
    With many setups or rows the figure is a heat map.
    """
    axis = groups.axis
    others = [option for option in groups.options if option is not axis]
    facets = [
        {option.key: value for option, value in zip(others, values, strict=True)}
        for values in product(*(option.values for option in others))
    ]
    many = len(groups.by_setup) > MANY or len(facets) > 4
    alt = f"Test accuracy over {axis.name} for {joined(groups.by_setup)}"
    figure = _heat_map(groups, axis, facets) if many else _lines(groups, axis, facets)
    return Picture("bits" if axis.is_bits else "sweep", alt, figure)


def _lines(groups: Groups, axis: Option, facets: list[Point]) -> Figure:
    with new_figure(60 + 240 * len(facets)) as figure:
        for row, facet in zip(figure.subplots(len(facets), 2, squeeze=False), facets, strict=True):
            there = groups.at(facet)
            title = f"Test accuracy, %, {groups.point_text(facet)}" if facet else "Test accuracy, %"
            row[0].set_title(title)
            for ax in row:
                _scale(ax, axis)
                for name, found in there.by_setup.items():
                    _draw(ax, groups.styles[name], found, axis)
            row[0].set_ylim(-3, 103)
            close_up(row[1], [run.test.accuracy for group in there.every for run in group.runs])
        lost = Line2D([], [], label="diverged", color=MUTED, marker="x", linestyle="none", markersize=9)
        add_legend(figure, groups.styles, *([lost] if any(group.diverged for group in groups.every) else []))
    return figure


def _draw(ax: Axes, style: SetupStyle, found: list[Group], axis: Option) -> None:
    level = next((group for group in found if axis.key not in group.point), None)
    if level:
        spread = level.accuracy
        ax.axhspan(100 * spread.low, 100 * spread.high, color=style.colour, alpha=0.18, linewidth=0)
        ax.axhline(100 * spread.mean, **style.line)
        return
    spreads = [
        next((group.accuracy for group in found if group.point[axis.key] == value), SeedSpread.of([]))
        for value in axis.values  # a value without a run breaks the line
    ]
    places = [axis.place(value) for value in axis.values]
    draw_line(ax, style, places, spreads, 100, connected=axis.is_numeric)
    for group in found:
        if group.diverged:
            height = 100 * group.accuracy.mean if group.accuracy.count else 0.0
            ax.plot(axis.place(group.point[axis.key]), height, "x", color=style.colour, markersize=11)


def _scale(ax: Axes, axis: Option) -> None:
    places = [axis.place(value) for value in axis.values]
    if axis.is_logarithmic and min(places) > 0:
        ax.set_xscale("log", base=2 if axis.is_bits else 10)
    elif axis.is_logarithmic:
        ax.set_xscale("symlog", linthresh=min(abs(place) for place in places if place))
    texts = [axis.text(value) for value in axis.values]
    ax.set_xticks(places, texts, rotation=35 if len("".join(texts)) > 24 else 0)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("bits of weights and activations" if axis.name == "bits" else axis.name)
    if axis.is_bits:
        ax.invert_xaxis()  # the widest on the left


def _heat_map(groups: Groups, axis: Option, facets: list[Point]) -> Figure:
    rows, spreads = [], []
    for name, facet in product(groups.by_setup, facets):
        rows.append(f"{name}, {groups.point_text(facet)}" if facet else name)
        points = [facet | {axis.key: value} for value in axis.values]
        cells = [groups.at(point).by_setup.get(name) for point in points]
        spreads.append([cell[0].accuracy if cell else None for cell in cells])
    with new_figure(60 + 20 * len(rows)) as figure:
        ax = figure.subplots()
        ax.set_title(f"Test accuracy, %, by {axis.name}")
        heat_map(
            ax,
            [[spread.mean if spread else None for spread in line] for line in spreads],
            [
                [f"{100 * s.mean:.1f}" if s and s.count else "NaN" if s else "" for s in line]
                for line in spreads
            ],
            rows,
            [axis.text(value) for value in axis.values],
        )
    return figure

"""The figures of the report: the training, a sweep, and what each parameter learns."""

import io
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter

from qat.report.groups import Groups
from qat.report.seed_spread import SeedSpread, short

MANY = 8  # setups: with more, lines in one panel cannot be told apart
Rows = dict[str, list[SeedSpread]]  # a row for each setup or parameter


def style() -> AbstractContextManager[None]:
    """Set matplotlib to the report's style; figures are drawn and saved inside."""
    return mpl.rc_context(fname=Path(__file__).with_name("report.mplstyle"))


def svg(figure: Figure) -> bytes:
    """The figure as an SVG file, the same bytes for the same figure."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def curves(groups: Groups) -> Figure:
    """Validation accuracy, validation loss and training loss after each epoch."""
    fields = {
        "Validation accuracy": "val_accuracy",
        "Validation loss": "val_loss",
        "Training loss": "train_loss",
    }
    epochs = range(1, 1 + max(len(run.epochs) for one in groups.every for run in one.runs))
    absent = [SeedSpread([])] * len(epochs)
    panels = {
        title: {one.setup: (one.curve(field) + absent)[: len(epochs)] for one in groups.every}
        for title, field in fields.items()
    }
    if len(groups.every) > MANY:
        return _heat_maps(panels, [str(epoch) for epoch in epochs])
    return _lines(groups, panels, list(epochs), "epoch")


def sweep(groups: Groups) -> Figure:
    """Test accuracy over `groups.axis`; a setup that this option does not concern is a level line."""
    axis = groups.axis
    rows: Rows = {}
    for one in groups.every:
        others = groups.point_text({key: value for key, value in one.point.items() if key != axis.key})
        row = rows.setdefault(one.setup + others, [SeedSpread([])] * len(axis.values))
        for n, value in enumerate(axis.values):
            if one.point.get(axis.key, value) == value:
                row[n] = one.accuracy
    texts = [axis.text(value) for value in axis.values]
    if len(groups.options) > 1 or len(rows) > MANY:
        return _heat_maps({"Test accuracy": rows}, texts)
    places = [axis.place(value) for value in axis.values]
    figure = _lines(groups, {"Test accuracy": rows}, places, axis.name)
    for ax in figure.axes:
        ax.set_xscale(**_scale(places if axis.is_numeric else []))
        ax.set_xticks(places, texts)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_inverted(axis.is_bits)  # the widest on the left
    return figure


def parameters(groups: Groups) -> Figure:
    """Heat maps with a row for each parameter and a column for each setup, on logarithmic scales."""
    names, setups = groups.parameters, [one.setup for one in groups.every]
    figure = _figure(90 + 17 * len(names))
    titles = ("Gradient, first epoch", "Gradient, last epoch", "Distance moved")
    for n, (ax, title) in enumerate(zip(figure.subplots(1, 3, sharey=True), titles, strict=True)):
        rows = {name: [one.learning(name)[n] for one in groups.every] for name in names}
        _heat_map(ax, title, rows, setups, short, room=5, is_logarithmic=True)
    return figure


def _figure(height: float) -> Figure:
    return Figure(figsize=(760 / 72, height / 72))


def _heat_maps(panels: dict[str, Rows], columns: list[str]) -> Figure:
    figure = _figure(sum(50 + 18 * len(rows) for rows in panels.values()))
    axes = figure.subplots(len(panels), squeeze=False).flat
    for ax, (title, rows) in zip(axes, panels.items(), strict=True):
        is_accuracy = "accuracy" in title
        _heat_map(ax, title, rows, columns, (lambda v: f"{100 * v:.1f}") if is_accuracy else short)
    return figure


def _lines(groups: Groups, panels: dict[str, Rows], places: list[Any], xlabel: str) -> Figure:
    """A panel for each title, of which the first is an accuracy, and this one again, close up.

    They show the means over `places`, and bands from the lowest to the highest of the seeds.
    """
    figure = _figure(60 + 110 * (len(panels) + 1))
    (title, accuracies), *losses = panels.items()
    contents = [(title, accuracies), ("The same, the best and 5 points below", accuracies), *losses]
    axes = figure.subplots(len(contents) // 2, 2).flat
    for ax, (title, rows) in zip(axes, contents, strict=True):
        ax.set(title=title, xlabel=xlabel)
        ax.grid(axis="y")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        for setup, spreads in rows.items():
            low, mean, high = ([getattr(s, name) for s in spreads] for name in ("low", "mean", "high"))
            n = groups.setups.index(setup)
            # A setup that another must equal gets a wide solid line: dashes on it show both.
            is_plain = setup in [plain for _, plain in groups.results.equal]
            line = {"ls": "-", "lw": 4.5} if is_plain else {"ls": ("-", "--", "-.", ":")[n % 4], "lw": 1.8}
            often = max(len(places) // 10, 1)
            ax.plot(
                places, mean, color=f"C{n}", marker="soD^vPX*"[n % 8], markevery=often, label=setup, **line
            )
            ax.fill_between(places, low, high, color=f"C{n}", alpha=0.18, linewidth=0)
        if rows is accuracies:
            ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        else:
            ax.set_yscale(**_scale([spread.mean for row in rows.values() for spread in row]))
            ax.yaxis.set_major_formatter("{x:g}")  # by default a formula
    highs = [spread.high for row in accuracies.values() for spread in row]
    best = max(filter(math.isfinite, highs), default=0.05)
    figure.axes[0].set_ylim(-0.03, 1.03)
    figure.axes[1].set_ylim(max(best - 0.05, -0.002), best + 0.004)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=5, handlelength=4)
    return figure


def _scale(values: list[float]) -> dict[str, Any]:
    """The scale of an axis: logarithmic, with zero on it, where the values differ much."""
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    if sizes and max(sizes) >= 8 * min(sizes):
        return {"value": "symlog", "linthresh": min(sizes), "subs": [2, 5]}
    return {"value": "linear"}


def _heat_map(
    ax: Axes,
    title: str,
    rows: Rows,
    columns: list[str],
    text: Callable[[float], str],
    room: int = 15,
    is_logarithmic: bool = False,
) -> None:
    """Draw the means as colours, the highest darkest, with numbers where there are at most `room` columns.

    An exact zero on a logarithmic scale gets a colour of its own; what is not finite gets none.
    """
    spreads = list(rows.values())
    means = np.array([[spread.mean for spread in row] for row in spreads]).reshape(len(rows), len(columns))
    zeros = (means == 0) & is_logarithmic
    levels = np.log10(np.where(zeros, 1, means)) if is_logarithmic else means.copy()
    known = levels[np.isfinite(levels) & ~zeros]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    margin = (high - low or 1.0) / 8  # keeps the ends apart from black and white
    levels[zeros] = low - 2 * margin
    colours = mpl.colormaps["Blues"].with_extremes(under=("#b8892f", 0.3), bad="none")
    ax.pcolormesh(levels, cmap=colours, vmin=low - margin, vmax=high + margin)
    for (y, x), mean in np.ndenumerate(means):
        shown = text(mean) if spreads[y][x].values else ""
        striking = {"weight": "bold"} if shown in ("0", "NaN") else {}
        if striking or len(columns) <= room:
            colour = "white" if levels[y, x] > (low + high) / 2 else mpl.rcParams["text.color"]
            ax.text(x + 0.5, y + 0.53, shown, size=8, ha="center", va="center", color=colour, **striking)
    ax.set_title(title)
    ax.invert_yaxis()
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labeltop=True, labelbottom=False)
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns, fontsize=9)
    ax.set_yticks(np.arange(len(rows)) + 0.5, list(rows), fontsize=9)
    if max(map(len, columns), default=0) > 5:
        for label in ax.get_xticklabels():
            label.set(rotation=55, horizontalalignment="left", rotation_mode="anchor")

"""The figures of the report: the training, a sweep, and what each parameter learns."""

import math
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, PercentFormatter

from qat.report.groups import Groups
from qat.report.seed_spread import SeedSpread, short

MANY = 8  # setups: with more, lines in one panel cannot be told apart
Panels = dict[str, dict[str, list[SeedSpread]]]  # {title: {setup or parameter: one value for each column}}


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
    rows: dict[str, list[SeedSpread]] = {}
    for one in groups.every:
        others = groups.point_text({key: value for key, value in one.point.items() if key != axis.key})
        row = rows.setdefault(one.setup + others, [SeedSpread([])] * len(axis.values))
        for n, value in enumerate(axis.values):
            if one.point.get(axis.key, value) == value:
                row[n] = one.accuracy
    texts, places = [axis.text(value) for value in axis.values], axis.places
    if len(groups.options) > 1 or len(rows) > MANY:
        return _heat_maps({f"Test accuracy by {axis.name}": rows}, texts)
    figure = _lines(groups, {"Test accuracy": rows}, places, axis.name)
    for ax in figure.axes:
        ax.set_xscale(**_scale(places if places == axis.values else []))
        ax.set_xticks(places, texts)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_inverted(axis.is_bits)  # the widest on the left
    return figure


def parameters(groups: Groups) -> Figure:
    """Heat maps with a row for each parameter and a column for each setup, on logarithmic scales."""
    titles = ("Gradient, first epoch", "Gradient, last epoch", "Distance moved")
    panels = {
        title: {name: [one.learning(name)[n] for one in groups.every] for name in groups.parameters}
        for n, title in enumerate(titles)
    }
    return _heat_maps(panels, [one.setup for one in groups.every], is_logarithmic=True)


def _lines(groups: Groups, panels: Panels, places: list[Any], xlabel: str) -> Figure:
    """Means over `places` with bands from the lowest to the highest seed; the first panel, also close up."""
    (title, accuracies), *losses = panels.items()
    contents = [(title, accuracies), ("The same, the best and 5 points below", accuracies), *losses]
    figure = Figure(figsize=(10.5, 0.8 + 1.5 * len(contents)))
    for ax, (title, rows) in zip(figure.subplots(len(contents) // 2, 2).flat, contents, strict=True):
        ax.set(title=title, xlabel=xlabel)
        ax.grid(axis="y")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        for setup, spreads in rows.items():
            low, mean, high = ([getattr(s, name) for s in spreads] for name in ("low", "mean", "high"))
            n = list(groups.results.listing.setups).index(setup)
            look = {
                "color": f"C{n}",
                "marker": "soD^vPX*"[n % 8],
                "ls": ("-", "--", "-.", ":")[n % 4],
                "lw": 1.8,
            }
            if setup in [plain for _, plain in groups.results.listing.equal]:
                look |= {"ls": "-", "lw": 4.5}  # dashes of the setup that must equal it show on top
            ax.plot(places, mean, markevery=max(len(places) // 10, 1), label=setup, **look)
            ax.fill_between(places, low, high, color=f"C{n}", alpha=0.18, linewidth=0)
        if rows is accuracies:
            ax.yaxis.set_major_formatter(PercentFormatter(1.0))
            continue
        ax.set_yscale(**_scale([spread.mean for row in rows.values() for spread in row]))
        if ax.get_yscale() == "log":
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set(major_formatter="{x:g}", minor_locator=NullLocator())  # by default a formula
    best = max((s.high for row in accuracies.values() for s in row if s.finite), default=0.05)
    figure.axes[0].set_ylim(-0.03, 1.03)
    figure.axes[1].set_ylim(max(best - 0.05, -0.002), best + 0.004)
    legend = figure.axes[0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside upper left", ncols=5, handlelength=4)
    return figure


def _scale(values: list[float]) -> dict[str, Any]:
    """The scale of an axis: logarithmic, with zero on it, where the values differ much."""
    sizes = [value for value in values if value > 0 and math.isfinite(value)]
    if not sizes or max(sizes) < 8 * min(sizes):
        return {"value": "linear"}
    return {"value": "symlog", "linthresh": min(sizes)} if 0 in values else {"value": "log"}


def _heat_maps(panels: Panels, columns: list[str], is_logarithmic: bool = False) -> Figure:
    """Means as colours: one panel above the other, or on a logarithmic scale side by side."""
    height = 0.9 + 0.25 * max(map(len, panels.values()))
    shape = (1, len(panels)) if is_logarithmic else (len(panels), 1)
    figure = Figure(figsize=(10.5, height * shape[0]))
    is_long = max(map(len, columns)) > 5
    turned: Any = {"rotation": 55, "ha": "left", "rotation_mode": "anchor"} if is_long else {}
    axes = figure.subplots(*shape, squeeze=False, sharey=is_logarithmic).flat
    for ax, (title, rows) in zip(axes, panels.items(), strict=True):
        _heat_map(ax, list(rows.values()), "accuracy" in title, is_logarithmic)
        ax.set(title=title, ylim=(len(rows) or 1, 0))
        ax.set_xticks(np.arange(len(columns)) + 0.5, columns, fontsize=9, **turned)
        ax.set_yticks(np.arange(len(rows)) + 0.5, list(rows), fontsize=9)
        ax.tick_params(length=0, labeltop=True, labelbottom=False)
        ax.spines[:].set_visible(False)
    return figure


def _heat_map(ax: Axes, spreads: list[list[SeedSpread]], is_percent: bool, is_logarithmic: bool) -> None:
    """The highest mean is darkest; an exact zero on a logarithmic scale has its own colour, NaN none."""
    means = np.array([[spread.mean for spread in row] for row in spreads], ndmin=2)
    zeros = (means == 0) & is_logarithmic
    levels = np.log10(np.where(zeros, 1, means)) if is_logarithmic else means
    known = levels[np.isfinite(levels) & ~zeros]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    margin = (high - low or 1.0) / 8  # keeps the ends apart from black and white
    colours = mpl.colormaps["Blues"].with_extremes(under=("#b8892f", 0.3), bad="none")
    shown = np.where(zeros, low - 2 * margin, levels)
    ax.pcolormesh(shown, cmap=colours, vmin=low - margin, vmax=high + margin)
    for (y, x), mean in np.ndenumerate(means):
        text = f"{100 * mean:.1f}" if is_percent and math.isfinite(mean) else short(mean)
        is_striking = text == "NaN" or zeros[y, x]
        if spreads[y][x].values and (is_striking or means.shape[1] <= (5 if is_logarithmic else 15)):
            colour = "white" if shown[y, x] > (low + high) / 2 else mpl.rcParams["text.color"]
            weight = "bold" if is_striking else "normal"
            ax.text(x + 0.5, y + 0.53, text, size=8, ha="center", va="center", color=colour, weight=weight)

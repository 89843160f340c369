"""Loss and accuracy of each setup after each epoch."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from qat.experiment.results import Result, by_setup
from qat.report.drawing import drawing_style
from qat.report.measures import curve
from qat.report.palette import Look, looks
from qat.report.spread import Spread, listing

WIDE, NARROW = 912, 360  # points; the page shows a point as about one pixel
_CLOSE_UP = 5  # percentage points below the best that the close-up shows
CLOSE_UP = f"The same, the best and {_CLOSE_UP} points below"

# Field, title, factor.
_PANELS = (
    ("val_accuracy", "Validation accuracy, %", 100.0),
    ("val_accuracy", CLOSE_UP, 100.0),
    ("val_loss", "Validation loss", 1.0),
    ("train_loss", "Training loss", 1.0),
)


def curves_figure(results: list[Result], narrow: bool = False) -> Figure:
    """Validation accuracy (whole and close up) and both losses: a mean line and a band over the seeds.

    Args:
        results: what `load_results` gives.
        narrow: panels below each other, for a phone.
    """
    setups = by_setup(results)
    look = looks(results)
    rows, columns = (4, 1) if narrow else (2, 2)
    with drawing_style():
        size = (NARROW / 72, 13.0) if narrow else (WIDE / 72, 8.2)
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.08))
        axes = figure.subplots(rows, columns).flat
        for ax, (field, title, factor) in zip(axes, _PANELS, strict=True):
            ax.set_title(title, pad=10)
            for name, runs in setups.items():
                spreads = curve(runs, field)
                draw_line(ax, look[name], range(1, len(spreads) + 1), spreads, factor)
            _epochs_axis(ax, max(len(run["epochs"]) for run in results))
        accuracy_axes(
            axes[0], axes[1], [s.high for runs in setups.values() for s in curve(runs, "val_accuracy")]
        )
        for ax, (field, _, _) in zip(axes[2:], _PANELS[2:], strict=True):
            _loss_axis(ax, [epoch[field] for run in results for epoch in run["epochs"]])
        handles = [legend_handle(look[name], name) for name in setups]
        figure.legend(handles=handles, loc="outside upper left", ncols=2 if narrow else 5, handlelength=4.5)
    return figure


def curves_alt(results: list[Result]) -> str:
    """The text for a reader who does not see the curves."""
    epochs = max(len(run["epochs"]) for run in results)
    setups = listing(by_setup(results)).replace("`", "")
    return (
        f"Four line charts over {epochs} epoch{'s' if epochs > 1 else ''} for {setups}: "
        "validation accuracy, the same close up, validation loss and training loss"
    )


def legend_handle(look: Look, name: str) -> Line2D:
    """The line of a setup as a legend shows it."""
    return Line2D([], [], label=name, **_line(look))  # type: ignore[arg-type] # keywords of many types


def _line(look: Look) -> dict[str, object]:
    return {
        "color": look.light,
        "linewidth": look.width,
        "linestyle": (0, look.dashes) if look.dashes else "solid",
        "marker": look.marker,
        "markersize": 6 if look.width < 4 else 8,
        "markerfacecolor": look.light,
        "markeredgecolor": look.light,
        "solid_capstyle": "round",
    }


def draw_line(
    ax: Axes, look: Look, places: Sequence[float], spreads: Sequence[Spread], factor: float = 100.0
) -> None:
    """The means times `factor` as a line over `places`, and a band from the lowest to the highest."""
    points = [(s.mean, s.low, s.high) for s in spreads]
    mean, low, high = ([factor * value for value in line] for line in zip(*points, strict=True))
    ax.fill_between(places, low, high, color=look.light, alpha=0.18, linewidth=0)
    line = _line(look)
    if len(points) > 15:
        line["markevery"] = len(points) // 10  # a marker at each epoch would hide the dashes
    ax.plot(places, mean, **line)  # type: ignore[arg-type] # as above


def _epochs_axis(ax: Axes, epochs: int) -> None:
    ax.grid(visible=True, axis="y")
    ax.set_xlabel("epoch")
    ax.set_xlim(0.5 if epochs < 4 else 0.7, epochs + (0.5 if epochs < 4 else 0.3))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, min_n_ticks=1))


def accuracy_axes(whole: Axes, close: Axes, accuracies: list[float]) -> None:
    """0 to 100 % on the one, the best of the fractions and a little below it on the other."""
    whole.set_ylim(-3, 103)
    best = 100 * max((value for value in accuracies if math.isfinite(value)), default=1.0)
    close.set_ylim(max(best - _CLOSE_UP, -0.2), best + 0.4)


def _loss_axis(ax: Axes, losses: list[float]) -> None:
    values = [loss for loss in losses if math.isfinite(loss)]
    if values and min(values) > 0 and max(values) > 8 * min(values):
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        # The usual labels are formulas, which are paths instead of text and have a font of their own.
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_locator(NullLocator())

"""The figure of the training: accuracy and losses after each epoch."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from qat.report.drawing import MANY, Picture, add_legend, close_up, draw_line, heat_map, new_figure
from qat.report.groups import Groups
from qat.report.spread import joined, short


def curves(groups: Groups) -> Picture:
    """A mean line and a band over the seeds for each group; of many groups heat maps of the means."""
    alt = f"Validation accuracy, validation loss and training loss by epoch for {joined(groups.by_setup)}"
    return Picture("curves", alt, _heat_maps(groups) if len(groups.every) > MANY else _lines(groups))


def _lines(groups: Groups) -> Figure:
    with new_figure(500) as figure:
        axes = list(figure.subplots(2, 2).flat)
        fields = ("val_accuracy", "val_accuracy", "val_loss", "train_loss")
        titles = ("Validation accuracy, %", "", "Validation loss", "Training loss")
        for ax, field, title in zip(axes, fields, titles, strict=True):
            ax.set_title(title)
            ax.set_xlabel("epoch")
            for one in groups.every:
                spreads = one.curve(field)
                factor = 100 if field == "val_accuracy" else 1
                draw_line(ax, groups.styles[one.setup], range(1, len(spreads) + 1), spreads, factor)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
        for ax, field in zip(axes[2:], fields[2:], strict=True):
            _scale(ax, [spread.mean for one in groups.every for spread in one.curve(field) if spread.count])
        axes[0].set_ylim(-3, 103)
        close_up(axes[1], [spread.high for one in groups.every for spread in one.curve("val_accuracy")])
        add_legend(figure, {name: groups.styles[name] for name in groups.by_setup})
    return figure


def _heat_maps(groups: Groups) -> Figure:
    panels = {
        "Validation accuracy, %": "val_accuracy",
        "Validation loss": "val_loss",
        "Training loss": "train_loss",
    }
    with new_figure(len(panels) * (50 + 18 * len(groups.every))) as figure:
        for ax, (title, field) in zip(figure.subplots(len(panels)), panels.items(), strict=True):
            curves_ = [[spread.mean for spread in one.curve(field)] for one in groups.every]
            epochs = max(map(len, curves_))
            few = epochs <= 15  # else the numbers do not fit into the cells
            texts = [[f"{100 * v:.1f}" if field == "val_accuracy" else short(v) for v in c] for c in curves_]
            texts = texts if few else [["" for _ in line] for line in texts]
            ax.set_title(f"{title}, by epoch")
            numbers = [f"{n}" if few or n % 10 == 0 else "" for n in range(1, epochs + 1)]
            heat_map(ax, curves_, texts, [one.setup for one in groups.every], numbers)
    return figure


def _scale(ax: Axes, values: list[float]) -> None:
    """A logarithmic axis where the losses differ much."""
    if values and min(values) > 0 and max(values) > 8 * min(values):
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        # By default the labels are formulas, which have their own font.
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_locator(NullLocator())

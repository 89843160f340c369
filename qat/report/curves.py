"""The figure of the training: accuracy and losses after each epoch."""

import math
from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from qat.report.drawing import MANY, Picture, add_legend, close_up, draw_line, new_figure
from qat.report.groups import Group, Groups
from qat.report.styles import MUTED, SetupStyle
from qat.report.spread import joined

_ACCURACY, _CLOSE_UP = "Validation accuracy, %", "The same, the best and 5 points below"
_GREY = SetupStyle(MUTED, (), "", 0.6)


def curves(groups: Groups) -> Picture:
    """A mean line and a band over the seeds for each group.

    With many groups each of them gets its own panels, with the others in grey behind it.
    """
    alt = f"Validation accuracy, validation loss and training loss by epoch for {joined(groups.by_setup)}"
    many = len(groups.every) > MANY
    return Picture("curves", alt, _panel_for_each(groups) if many else _panels_for_all(groups))


def _panels_for_all(groups: Groups) -> Figure:
    with new_figure(500) as figure:
        axes = figure.subplots(2, 2).flat
        fields = ("val_accuracy", "val_accuracy", "val_loss", "train_loss")
        titles = (_ACCURACY, _CLOSE_UP, "Validation loss", "Training loss")
        for ax, field, title in zip(axes, fields, titles, strict=True):
            ax.set_title(title)
            ax.set_xlabel("epoch")
            for group in groups.every:
                _draw(ax, groups.styles[group.setup], group, field)
            if field.endswith("loss"):
                _loss_scale(ax, groups, field)
        axes[0].set_ylim(-3, 103)
        close_up(axes[1], [spread.high for g in groups.every for spread in g.curve("val_accuracy")])
        add_legend(figure, {name: groups.styles[name] for name in groups.by_setup})
    return figure


def _panel_for_each(groups: Groups) -> Figure:
    rows = math.ceil(len(groups.every) / 4)
    with new_figure(250 * rows + 60) as figure:
        accuracy, loss = figure.subfigures(2, 1)
        accuracy.suptitle(_ACCURACY, x=0.01, ha="left", fontsize=11)
        loss.suptitle("Loss: validation solid, training dotted", x=0.01, ha="left", fontsize=11)
        for ax, group in _with_panels(groups, accuracy.subplots(rows, 4, sharex=True, sharey=True).flat):
            for other in groups.every:
                _draw(ax, _GREY, other, "val_accuracy")
            _draw(ax, SetupStyle(groups.styles[group.setup].colour, (), "", 2.2), group, "val_accuracy")
        for ax, group in _with_panels(groups, loss.subplots(rows, 4, sharex=True, sharey=True).flat):
            for other in groups.every:
                _draw(ax, _GREY, other, "val_loss")
            _draw(ax, SetupStyle(groups.styles[group.setup].colour, (), "", 2.2), group, "val_loss")
            _draw(ax, SetupStyle(groups.styles[group.setup].colour, (1, 1), "", 2.2), group, "train_loss")
            _loss_scale(ax, groups, "train_loss")
    return figure


def _with_panels(groups: Groups, axes: Iterator[Axes]) -> Iterator[tuple[Axes, Group]]:
    """Each group with a panel that has its title; the panels that remain are hidden."""
    for ax, group in zip(axes, [*groups.every, *[None] * 3], strict=False):
        if group is None:
            ax.set_visible(False)
        else:
            ax.set_title(group.setup, fontsize=9)
            yield ax, group


def _draw(ax: Axes, style: SetupStyle, group: Group, field: str) -> None:
    spreads = group.curve(field)
    draw_line(ax, style, range(1, len(spreads) + 1), spreads, 100 if field == "val_accuracy" else 1)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))


def _loss_scale(ax: Axes, groups: Groups, field: str) -> None:
    values = [spread.mean for group in groups.every for spread in group.curve(field) if spread.count]
    if values and min(values) > 0 and max(values) > 8 * min(values):
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        # By default the labels are formulas, which have their own font.
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_locator(NullLocator())

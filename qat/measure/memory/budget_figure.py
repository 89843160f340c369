"""The largest batch of each mode."""

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from qat.measure.memory.budget import Budget
from qat.measure.memory.drawing import LOOKS, WIDTH, drawing_style, frame_bars
from qat.measure.memory.table import fits, megabytes


def budget_figure(budget: Budget) -> Figure:
    """A bar for each mode; none where the peak did not grow with the batch."""
    with drawing_style():
        figure = Figure(figsize=(WIDTH, 3.6), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        ax = figure.subplots()
        lengths = [batch or 0 for batch in budget.largest.values()]
        bars = ax.barh(list(budget.largest), lengths, color=[LOOKS[name].fill for name in budget.largest])
        ax.bar_label(bars, [fits(batch) for batch in budget.largest.values()], padding=5)
        frame_bars(ax, max(1, *lengths), room=0.12)
        ax.set_title(f"Largest batch that trains in {megabytes(budget.bytes)} MB, images", pad=10)
    return figure

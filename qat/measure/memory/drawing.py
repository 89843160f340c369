"""The look of the figures, and how they become files."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qat.measure.memory.depth import SQRT
from qat.measure.memory.modes import BOTH, FLOAT, PLAIN

INK, MUTED, GRID, PAPER = "#1d2228", "#59626d", "#d9dee4", "#fefefe"
GREY, LIGHT = "#666c74", "#a9b0b8"
WIDTH = 912 / 72  # inches

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure everywhere
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
}


@dataclass(frozen=True)
class Look:
    """How a mode is drawn in every figure: colour, line style and marker as matplotlib names them."""

    colour: str
    dashes: str | tuple[int, tuple[float, ...]]
    marker: str
    width: float = 2.0  # points

    @property
    def fill(self) -> str:
        """The colour of a bar: lighter where the line is broken and nothing is quantized."""
        return self.colour if self.dashes == "solid" or self.colour != GREY else LIGHT


# After Okabe and Ito (2008): kept apart with the usual colour-vision deficiencies, too.
LOOKS = {
    FLOAT: Look(GREY, "solid", "D"),
    "float checkpointed": Look(GREY, (0, (3, 2)), "^", 4.5),  # under the one of QAT
    SQRT: Look(GREY, (0, (1, 1.2)), "v"),
    PLAIN: Look("#0072b2", "solid", "o"),
    "packed": Look("#aa3377", "solid", "s"),
    "checkpointed": Look("#d08400", (0, (5, 2)), "^"),
    BOTH: Look("#00805c", "solid", "P"),
}


def frame_bars(ax: Axes, longest: float, room: float) -> None:
    """An axis for horizontal bars, the first on top, with room for the labels: a share of the longest."""
    ax.set_xlim(0, (1 + room) * longest)
    ax.grid(visible=True, axis="x")
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines["left"].set_visible(False)
    if not ax.yaxis_inverted():  # the axis may be shared
        ax.invert_yaxis()


@contextmanager
def drawing_style() -> Iterator[None]:
    """matplotlib's settings for the figures here, put back on leaving."""
    with mpl.rc_context(_STYLE):
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a PNG whole or not at all, 2 pixels for each point of its size."""
    part = path.with_name(path.name + ".part")
    with drawing_style():
        figure.savefig(part, format="png", dpi=144, facecolor=PAPER, metadata={"Software": None})
    part.replace(path)

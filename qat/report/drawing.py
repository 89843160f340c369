"""What the figures share: a picture as files, a line with its band, a heat map, a legend."""

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from qat.report.spread import SeedSpread
from qat.report.styles import INK, PAPER, STYLE, ZONE, SetupStyle

MANY = 8  # setups: with more, lines in one panel cannot be told apart
_WIDTH = 760  # points


@dataclass(frozen=True)
class Picture:
    """A figure with its name as a file and a text for those who do not see it."""

    name: str
    alt: str
    figure: Figure

    def file(self, kind: str) -> bytes:
        """The content of a `png` file, 2 pixels a point on paper, or of an `svg` file without a ground."""
        metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
        with mpl.rc_context(STYLE), io.BytesIO() as stream:
            ground = PAPER if kind == "png" else "none"
            self.figure.savefig(stream, format=kind, dpi=144, facecolor=ground, metadata=metadata)
            return stream.getvalue()


@contextmanager
def new_figure(height: float) -> Iterator[Figure]:
    """A figure of the report's width, `height` points high, in the report's style."""
    with mpl.rc_context(STYLE):
        yield Figure(
            figsize=(_WIDTH / 72, height / 72), layout=ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.06)
        )


def add_legend(figure: Figure, styles: dict[str, SetupStyle], *others: Line2D) -> None:
    """Name the setups above the panels."""
    handles = [Line2D([], [], label=name, **style.line) for name, style in styles.items()]
    handles += others
    # Five in a row: matplotlib fills columns first.
    rows = [handle for column in range(5) for handle in handles[column::5]]
    figure.legend(handles=rows, loc="outside upper left", ncols=min(len(rows), 5), handlelength=4)


def draw_line(
    ax: Axes,
    style: SetupStyle,
    places: Sequence[float],
    spreads: Sequence[SeedSpread],
    factor: float = 1.0,
    connected: bool = True,
) -> None:
    """The means times `factor` over `places`, and from the lowest to the highest a band, or bars."""
    low, mean, high = ([factor * getattr(s, name) for s in spreads] for name in ("low", "mean", "high"))
    if connected:
        ax.fill_between(places, low, high, color=style.colour, alpha=0.18, linewidth=0)
    else:
        ax.vlines(places, low, high, color=style.colour)
    # A marker at each of many epochs would hide the dashes.
    line = style.line | {"markevery": max(len(places) // 10, 1)}
    ax.plot(places, mean, **line | ({} if connected else {"linestyle": "none"}))
    ax.grid(visible=True, axis="y")


def close_up(ax: Axes, fractions: Iterable[float]) -> None:
    """Show the highest of the fractions and 5 percentage points below it."""
    ax.set_title("The same, the best and 5 points below")
    best = 100 * max((value for value in fractions if math.isfinite(value)), default=1.0)
    ax.set_ylim(max(best - 5, -0.2), best + 0.4)


def heat_map(
    ax: Axes,
    values: Sequence[Sequence[float | None]],
    texts: list[list[str]],
    rows: list[str],
    columns: list[str],
) -> None:
    """Draw a table of numbers as colours, the highest darkest, and write the texts into its cells.

    An exact zero gets a ground of its own, so that it stands out; what is None or not finite gets none.
    """
    known = [v for row in values for v in row if v is not None and math.isfinite(v)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    colours = mpl.colormaps["Blues"]
    for y, (line, words) in enumerate(zip(values, texts, strict=True)):
        for x, (value, text) in enumerate(zip(line, words, strict=True)):
            share = 0.0
            if value is not None and math.isfinite(value):
                share = 0.1 + 0.8 * (value - low) / (high - low or 1.0)
            ground = {"facecolor": colours(share)} if share else {"facecolor": ZONE, "alpha": 0.3}
            if share or text == "0":
                ax.add_patch(Rectangle((x, y), 1, 1, edgecolor="none", **ground))
            weight = "bold" if text in ("0", "NaN") else "normal"
            colour = PAPER if share > 0.55 else INK
            cell = ax.text(x + 0.5, y + 0.53, text, ha="center", va="center", fontsize=8)
            cell.set(color=colour, weight=weight)
    ax.set_xlim(0, max(len(columns), 1))
    ax.set_ylim(max(len(rows), 1), 0)
    ax.tick_params(length=0, labeltop=True, labelbottom=False)
    ax.set_xticks([n + 0.5 for n in range(len(columns))], columns, fontsize=9)
    if max(map(len, columns), default=0) > 5:
        for label in ax.get_xticklabels():
            label.set(rotation=55, horizontalalignment="left", rotation_mode="anchor")
    ax.set_yticks([n + 0.5 for n in range(len(rows))], rows, fontsize=9)
    ax.spines[:].set_visible(False)

"""A figure as a PNG file's bytes, or as SVG that is part of the page."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from qat.report.palette import COLOURS, GRID, INK, MUTED, PAPER

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure everywhere
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.parse_math": False,  # a name may hold a dollar sign
    "svg.fonttype": "none",
    "svg.hashsalt": "qat",  # otherwise random: two builds of one report would differ
}
_NOT_IN_A_PAGE = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)


@contextmanager
def drawing_style() -> Iterator[None]:
    """matplotlib's settings for the figures here, put back on leaving."""
    with mpl.rc_context(_STYLE):
        yield


def png(figure: Figure) -> bytes:
    """The figure on paper of the light page, 2 pixels for each point of its size."""
    with drawing_style(), io.BytesIO() as stream:
        figure.savefig(stream, format="png", dpi=144, facecolor=PAPER, metadata={"Software": None})
        return stream.getvalue()


def svg(figure: Figure, name: str) -> str:
    """The figure as an inline `<svg>` as wide as its box: the page's fonts and colours, ids `name-...`."""
    with drawing_style(), io.StringIO() as stream:
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(stream, format="svg", facecolor="none", metadata=nothing)
        text = stream.getvalue()
    # The root's own attributes fix a size and name schemas by addresses: of them a page needs the box alone.
    box = re.search(r'viewBox="[^"]*"', text)
    body = text[text.index(">", text.index("<svg")) + 1 :]
    text = f"<svg {box[0] if box else ''}>" + _NOT_IN_A_PAGE.sub("", body)
    text = text.replace("xlink:href", "href").replace("'DejaVu Sans'", "inherit")
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", text)
    text = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    for colour, (light, _) in COLOURS.items():
        text = text.replace(light, f"var(--{colour})")
    return text.strip()

"""How setups look, and the style of all figures."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

INK, MUTED, PAPER, ZONE = "#1d2228", "#59626d", "#fefefe", "#b8892f"

# After Okabe and Ito (2008) and Tol's bright scheme: the common colour-vision deficiencies keep them apart.
# On a dark page the style sheet inverts them, which keeps their hue and their contrast.
PALETTE = (
    *("#aa3377", "#0072b2", "#666c74", "#c67d00", "#00805c"),
    *("#c94a00", "#2f8fc4", "#7a5230", "#6f7a00", "#b3202c"),
)
_DASHES = ((), (4, 1.5), (1, 1.2), (3, 2), (6, 2, 1, 2), (5, 1, 1, 1, 1, 1))
_MARKERS = "soD^vPX<>p*h"

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure everywhere
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # a name may hold a dollar sign
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "grid.color": MUTED,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "svg.hashsalt": "qat",  # otherwise random: two builds of one report would differ
}


@dataclass(frozen=True)
class SetupStyle:
    """How a setup is drawn everywhere: colour, dashes in line widths, marker, line width in points."""

    colour: str
    dashes: tuple[float, ...]
    marker: str
    width: float

    @property
    def line(self) -> dict[str, Any]:
        """The keywords of matplotlib's lines."""
        style = (0, self.dashes) if self.dashes else "solid"
        return {"color": self.colour, "linestyle": style, "linewidth": self.width, "marker": self.marker}


def styles(setups: Iterable[str], plain: Iterable[str]) -> dict[str, SetupStyle]:
    """The style of each setup, by their order.

    The `plain` setups, which others must equal, get a wide solid line: dashes on it show both.
    """
    wide = set(plain)
    return {
        name: SetupStyle(
            PALETTE[n % len(PALETTE)],
            () if name in wide else _DASHES[n % len(_DASHES)],
            _MARKERS[n % len(_MARKERS)],
            4.5 if name in wide else 1.9,
        )
        for n, name in enumerate(setups)
    }

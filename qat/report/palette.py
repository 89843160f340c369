"""One look for each setup and the colours of the page, light and dark.

A figure is drawn in the light colours. In the page each of them becomes the CSS variable of its name, so that
one drawing serves both.
"""

from dataclasses import dataclass

from qat.experiment.results import Result, by_setup

INK, MUTED, GRID, BAND, ZONE, PAPER = "#1d2228", "#59626d", "#d9dee4", "#f5f7f9", "#e8e4d8", "#fefefe"

# Name: (light, dark). After Okabe and Ito (2008) and Tol's bright scheme, so that the usual colour-vision
# deficiencies keep them apart; each has a contrast of at least 3 with its own background.
COLOURS = {
    "ink": (INK, "#e4e8ed"),
    "muted": (MUTED, "#9ba5b1"),
    "grid": (GRID, "#343c46"),
    "band": (BAND, "#1c2229"),
    "zone": (ZONE, "#3a3628"),
    "shade": ("#c3cad2", "#07090c"),
    "paper": (PAPER, "#14181d"),
    "purple": ("#aa3377", "#e87fba"),
    "blue": ("#0072b2", "#4ba6e8"),
    "grey": ("#666c74", "#b4bcc6"),
    "orange": ("#d08400", "#f7b844"),
    "green": ("#00805c", "#2fc095"),
    "vermillion": ("#c94a00", "#ff8a52"),
    "sky": ("#2f8fc4", "#8fd0f7"),
    "brown": ("#7a5230", "#c99d74"),
    "olive": ("#6f7a00", "#c3cf4e"),
    "red": ("#b3202c", "#ff7f88"),
}


@dataclass(frozen=True)
class Look:
    """How a setup is drawn, everywhere: colour name, line, marker (both as matplotlib names them)."""

    colour: str
    dashes: tuple[float, ...]  # on, off, ... in line widths; empty for solid
    marker: str
    width: float  # points

    @property
    def light(self) -> str:
        """The colour in which figures are drawn."""
        return COLOURS[self.colour][0]


# The three that save memory must equal `ste`: thin bright dashes over a wide line show all of them.
_KNOWN = {
    "zero": Look("purple", (), "s", 2.0),
    "ste": Look("blue", (), "o", 4.5),
    "float": Look("grey", (1, 1.2), "D", 2.0),
    "checkpointed": Look("orange", (3, 2), "^", 1.8),
    "packed": Look("olive", (1, 3), "<", 1.8),
    "packed_checkpointed": Look("red", (2, 5), ">", 1.8),
    "ewgs": Look("green", (6, 2), "v", 1.8),
    "soft": Look("vermillion", (4, 1.5, 1, 1.5), "P", 1.8),
    "stochastic": Look("sky", (5, 1, 1, 1, 1, 1), "X", 1.8),
    "learned": Look("brown", (2, 3), "p", 1.8),
}


def looks(results: list[Result]) -> dict[str, Look]:
    """The look of each setup: the same in every report for the known ones; others take what is free."""
    setups = by_setup(results)
    others = [name for name in setups if name not in _KNOWN]
    free = [look for name, look in reversed(_KNOWN.items()) if name not in setups] or list(_KNOWN.values())
    return _KNOWN | {name: free[n % len(free)] for n, name in enumerate(others)}

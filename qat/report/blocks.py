"""The blocks that a report is made of; the two pages write them, each in its own language."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

_FOLD = 24  # a longer table begins folded


@dataclass(frozen=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph; `kind` is `headline`, `note`, `reading` or `alarm`. Names in backticks are code."""

    text: str
    kind: str


@dataclass(frozen=True)
class Drawing:
    """A figure: `draw(narrow)`."""

    name: str
    alt: str
    draw: Callable[[bool], Figure]


@dataclass(frozen=True)
class Rows:
    """A table; the first column is text, the others are numbers unless `text` says so."""

    caption: str
    header: list[str]
    rows: list[list[str]]
    text: bool = False

    @property
    def folded(self) -> bool:
        """Whether it begins folded: a long one would push everything below out of sight."""
        return len(self.rows) > _FOLD


Block = Heading | Text | Drawing | Rows

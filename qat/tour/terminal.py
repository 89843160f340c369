"""The tour in a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qat.tour.expected import Says
from qat.tour.experiment import Chapter, Figure, Result
from qat.tour.text import readable

LONGEST = 100  # characters of a message; the page has it whole


def show_chapter(console: Console, place: int, chapter: Chapter) -> None:
    """The heading of a chapter, and of the columns below it."""
    console.rule(Text(f"{place}  {chapter.title}", style="bold"), align="left", style="dim")
    table = _columns()
    table.add_row("", "", *(Text(word, style="dim") for word in ("expected", "measured")), "")
    console.print(table)


def show_result(console: Console, number: int, result: Result) -> None:
    """One experiment: its title with a tick or a cross, why, and expected beside measured."""
    subject = result.experiment
    mark = _mark(console, result.ok)
    console.print(Text.assemble((f"{number:3} ", "dim"), mark, " ", (subject.title, "bold")))
    console.print(Padding(Text(subject.why, style="italic dim"), (0, 0, 0, 6)))
    table = _columns()
    for figure in result.figures:
        table.add_row(
            "",
            Text(figure.name),
            Text(_cut(readable(figure.expected))),
            Text(_excerpt(figure), style="" if figure.ok else "red"),
            _mark(console, figure.ok),
        )
    console.print(table)
    console.print()


def _columns() -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(width=4)
    for ratio in (6, 7, 7):
        table.add_column(ratio=ratio, overflow="fold")
    table.add_column(width=1)
    return table


def show_end(console: Console, results: Sequence[Result]) -> None:
    """How many were as expected, and the titles of the others."""
    good = sum(result.ok for result in results)
    for number, result in enumerate(results, 1):
        if not result.ok:
            console.print(Text.assemble(_mark(console, False), f" {number} {result.experiment.title}"))
    style = "bold green" if good == len(results) else "bold red"
    console.print(Text(f"{good} of {len(results)} as expected", style=style))


def _mark(console: Console, ok: bool) -> Text:
    utf = console.encoding.lower().startswith("utf")
    words = ("\N{CHECK MARK}", "\N{BALLOT X}") if utf else ("+", "X")
    return Text(words[0] if ok else words[1], style="green" if ok else "red")


def _excerpt(figure: Figure) -> str:
    """The measured value; of a long message, the part that was expected."""
    text = readable(figure.measured)
    if figure.ok and isinstance(figure.expected, Says) and len(text) > LONGEST:
        wanted = figure.expected.text
        start = text.index(wanted)
        return ("... " if start else "") + text[start : start + max(len(wanted), LONGEST)].rstrip() + " ..."
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 4] + " ..."

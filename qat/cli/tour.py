"""The tour in a terminal: experiments on custom gradients, expected beside measured."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qat.cli.exits import leave
from qat.cli.parser import OneLineParser
from qat.tour import CHAPTERS, run_tour, write_page
from qat.tour.experiment import Chapter, Finished
from qat.tour.text import excerpt, readable
from qat.whole_file import check_folder

DESCRIPTION = "Run experiments on custom gradients, and compare the measured values with the expected ones."
HTML_HELP = "Also write the experiments and their autograd graphs to this HTML page."


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` without the program's name, by default the process's own.

    Raises:
        SystemExit: 1 where a measured value is not the expected one, 2 on bad input.
    """
    parser = OneLineParser(description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--html", type=str | None, default=None, metavar="FILE", help=HTML_HELP)
    html = parser.parse_args(None if argv is None else list(argv)).html
    console = Console(highlight=False)

    def show(chapter: Chapter, finished: Finished | None) -> None:
        if finished:
            _show_experiment(console, finished)
        else:
            console.rule(Text(chapter.title, "bold"), align="left", style="dim")

    try:
        if html is not None:
            check_folder(html)  # before the experiments run
        tour = run_tour(CHAPTERS, show)
        if html is not None:
            console.print(f"written to {write_page(html, tour)}", soft_wrap=True)
    except (ValueError, OSError) as error:
        leave(f"error: html: {error}", 2)
    results = [finished for _, group in tour for finished in group]
    wrong = [finished for finished in results if not finished.ok]
    for finished in wrong:
        console.print(_mark(console, False), finished.number, finished.experiment.title)
    console.print(f"{len(results) - len(wrong)} of {len(results)} as expected")
    if wrong:
        sys.exit(1)


def _show_experiment(console: Console, finished: Finished) -> None:
    """Its title with a tick or a cross, the explanation, and expected beside measured values."""
    title = Text.assemble((f"{finished.number:3} ", "dim"), _mark(console, finished.ok), " ")
    console.print(title.append(finished.experiment.title, "bold"))
    console.print(Padding(Text(finished.experiment.why, "italic"), (0, 0, 0, 6)))
    table = Table(box=None, padding=(0, 2, 0, 0), expand=True, header_style="dim")
    for heading, ratio in (("", 6), ("expected", 7), ("measured", 7)):
        table.add_column(heading, ratio=ratio, overflow="fold")
    table.add_column(width=1)
    for finding in finished.findings:
        measured = Text(excerpt(finding.expected, finding.measured), "" if finding.ok else "red")
        expected = Text(readable(finding.expected))
        table.add_row(Text(finding.name), expected, measured, _mark(console, finding.ok))
    console.print(Padding(table, (0, 0, 1, 6)))


def _mark(console: Console, ok: bool) -> Text:
    marks = "\N{BALLOT X}\N{CHECK MARK}" if console.encoding.lower().startswith("utf") else "X+"
    return Text(marks[ok], "green" if ok else "red")

"""Run experiments on custom gradients and compare what they measure with what is expected."""

import sys
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qat.cli.exits import leave
from qat.cli.parser import OneLineParser
from qat.tour import CHAPTERS, html_page, run_tour
from qat.tour.experiment import Finished
from qat.tour.text import excerpt, readable
from qat.whole_file import check_folder, write_whole

HTML_HELP = "Also write the experiments and their autograd graphs to this HTML page."


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; exit with 1 where a value is not the expected one, with 2 on bad input."""
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--html", type=str | None, default=None, metavar="FILE", help=HTML_HELP)
    html = parser.parse_args(argv).html
    console = Console(highlight=False)
    tour = []
    try:
        if html is not None:
            check_folder(html)  # before the experiments run
        for chapter, group in groupby(run_tour(CHAPTERS), itemgetter(0)):
            console.rule(Text(chapter.title, "bold"), align="left", style="dim")
            for _, finished in group:
                _show_experiment(console, finished)
                tour.append((chapter, finished))
        if html is not None:
            console.print(f"written to {write_whole(html, html_page(tour))}", soft_wrap=True)
    except (ValueError, OSError) as error:
        leave(f"error: html: {error}", 2)
    wrong = [finished for _, finished in tour if not finished.ok]
    for finished in wrong:
        console.print(_mark(console, False), finished.number, finished.experiment.title)
    console.print(f"{len(tour) - len(wrong)} of {len(tour)} as expected")
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

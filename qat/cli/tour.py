"""The tour: experiments on gradients that are written by hand, each expected and measured."""

import sys
from collections.abc import Callable, Sequence

from rich.console import Console

from qat.cli.exits import leave
from qat.cli.parser import OneLineParser
from qat.tour import (
    causes,
    check,
    context,
    contract,
    losses,
    need,
    recompute,
    second,
    stable,
)
from qat.tour.experiment import Chapter, Result, run_experiment
from qat.tour.page import check_file, write_page
from qat.tour.terminal import show_chapter, show_end, show_result

CHAPTERS: tuple[Chapter, ...] = tuple(
    part.CHAPTER
    for part in (
        need,
        contract,
        context,
        recompute,
        check,
        second,
        causes,
        stable,
        losses,
    )
)


def run_tour(
    chapters: Sequence[Chapter], show: Callable[[Chapter, Result | None], None] | None = None
) -> list[tuple[Chapter, list[Result]]]:
    """Run all experiments in order.

    Args:
        chapters: what to run.
        show: called with each chapter and None when it begins, and with each result when it is there.
    """
    results = []
    for chapter in chapters:
        if show:
            show(chapter, None)
        group = []
        for subject in chapter.experiments:
            group.append(run_experiment(subject))
            if show:
                show(chapter, group[-1])
        results.append((chapter, group))
    return results


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` without the program's name, by default the process's own.

    Raises:
        SystemExit: 1 where a measured value is not the expected one, 2 on bad input.
    """
    parser = OneLineParser(
        description="Gradients by hand: experiments, each expected and measured.", allow_abbrev=False
    )
    parser.add_argument(
        "--html", type=str | None, default=None, help="Write the tour with its graphs as one page."
    )
    args = parser.parse_args(None if argv is None else list(argv))
    try:
        if args.html is not None:
            check_file("html", args.html)
    except ValueError as error:
        leave(f"error: {error}", 2)
    console = Console(highlight=False)
    counts = {"chapter": 0, "experiment": 0}

    def show(chapter: Chapter, result: Result | None) -> None:
        counts["experiment" if result else "chapter"] += 1
        if result:
            show_result(console, counts["experiment"], result)
        else:
            show_chapter(console, counts["chapter"], chapter)

    tour = run_tour(CHAPTERS, show)
    if args.html is not None:
        try:
            write_page(args.html, tour)
        except OSError as error:  # a full disk, say
            leave(f"error: {error}", 2)
        console.print(f"written to {args.html}", soft_wrap=True)
    results = [result for _, group in tour for result in group]
    show_end(console, results)
    if not all(result.ok for result in results):
        sys.exit(1)

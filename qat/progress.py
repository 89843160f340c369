"""Progress bars for long work."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")


def of_a_whole() -> tuple[ProgressColumn, ...]:
    """The columns of a bar for work of several kinds: the current step, the finished share, the time left."""
    share, left = TextColumn("{task.percentage:>3.0f} %"), TextColumn("left:")
    return (
        TextColumn("{task.description}"),
        BarColumn(),
        share,
        TimeElapsedColumn(),
        left,
        TimeRemainingColumn(),
    )


def tracked(items: Sequence[T], description: str, after: float = 2.0) -> Iterator[T]:
    """Yield the items; after `after` seconds, show on stderr how many are done and the time left."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    show_at = time.monotonic() + after
    try:
        for item in progress.track(items, description=description):
            if time.monotonic() > show_at:
                progress.start()
            yield item
    finally:
        if progress.live.is_started:  # stopping a bar that was not started prints an empty line
            progress.stop()


@contextmanager
def announced(title: str, total: float) -> Iterator[Callable[..., None]]:
    """Show a bar on stderr for work whose pieces are announced as they begin; only on a terminal.

    Yields a function of the description of a piece, and of its share of `total` (by default 1). The bar is
    refreshed by it alone: no thread runs beside what may be timed.
    """
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Progress(
        *of_a_whole(), console=console, transient=True, auto_refresh=False, disable=hidden
    ) as progress:
        task = progress.add_task(title, total=total)
        running = 0.0

        def announce(description: str, size: float = 1.0) -> None:
            nonlocal running
            progress.update(task, advance=running, description=f"{title}: {description}", refresh=True)
            running = size

        yield announce

"""A progress bar for loops that may take long."""

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


def tracked(items: Sequence[T], description: str, after: float = 2.0) -> Iterator[T]:
    """Yield the items; after `after` seconds show how many are done and the time that remains, on stderr."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    show_at = time.monotonic() + after
    try:
        for item in progress.track(items, description=description):
            if time.monotonic() > show_at:
                progress.start()
            yield item
    finally:
        if progress.live.is_started:  # stopping a bar that never was prints an empty line
            progress.stop()

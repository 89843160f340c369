"""A bar on stderr: what is being measured, how much of it is done, and the time that remains."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def showing(part: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar of `total` units; what it yields is called with a description when each of them begins."""
    columns = (BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    # No refreshing thread: it would run beside what is timed.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task(part, total=total)
        begun = -1

        def show(text: str) -> None:
            nonlocal begun
            begun += 1
            progress.update(task, completed=begun, description=f"{part}: {text}", refresh=True)

        yield show

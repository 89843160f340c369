"""What is timed: a call with a name, built when its turn comes, or the reason why it cannot be."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True)
class Work:
    """A call to be timed.

    Args:
        call: does the work once.
        path: how its quantizers run, asked after the first calls; empty where it has none.
    """

    call: Callable[[], object]
    path: Callable[[], str] = str


@dataclass(frozen=True)
class Candidate:
    """One row of a table.

    Args:
        name: unique in its table.
        build: makes what is timed.
        package: that it needs beside this one's own.
    """

    name: str
    build: Callable[[], Work]
    package: str | None = None

    @property
    def missing(self) -> str:
        """Why it cannot run here, with the remedy; empty where it can."""
        if self.package is None or find_spec(self.package) is not None:
            return ""
        return f'{self.package} is not installed: python -m pip install --editable ".[bench]"'

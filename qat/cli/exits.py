"""How a verb ends early: one line on stderr and an exit code."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from qat.names import one_line
from qat.options import BAD_INPUT


def leave(message: str, code: int) -> NoReturn:
    """Print one line on stderr and exit with a code."""
    print(message, file=sys.stderr)
    sys.exit(code)


@contextmanager
def errors_in_one_line(
    kinds: tuple[type[Exception], ...] = BAD_INPUT, stopped: str | None = None
) -> Iterator[None]:
    """Exit with 2 after an error of these kinds, and with 130 after Ctrl-C where `stopped` is its message."""
    try:
        yield
    except kinds as error:
        leave(f"error: {one_line(error)}", 2)
    except KeyboardInterrupt:
        if stopped is None:
            raise
        leave(stopped, 130)

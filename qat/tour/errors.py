"""Errors and warnings as measured values of one line."""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NO_ERROR = "no error"


def error_text(error: Exception | Warning) -> str:
    """`Kind: message` on one line, without the links that torch puts into its messages."""
    text = re.sub(r"\(Example: \S+\)|https?://\S+", "", str(error))
    return f"{type(error).__name__}: {' '.join(text.split())}"


def error_of(action: Callable[[], object]) -> str:
    """The error that an action raises as one line, or `NO_ERROR`."""
    try:
        action()
    except (RuntimeError, ValueError, TypeError) as error:
        return error_text(error)
    return NO_ERROR


@contextmanager
def collected_warnings(category: type[Warning], pattern: str) -> Iterator[list[str]]:
    """Collect the warnings of one category whose message matches a pattern; all others are passed on."""
    collected: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message=pattern, category=category)
        yield collected
    for warning in caught:
        if isinstance(warning.message, category) and re.match(pattern, str(warning.message)):
            collected.append(error_text(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

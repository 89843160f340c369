"""Errors and warnings as measured values of one line."""

import re
import warnings
from collections.abc import Callable

NO_ERROR = "no error"


def error_text(error: Exception) -> str:
    """`Kind: message` on one line, without the links that torch puts into its messages."""
    text = re.sub(r"\(Example: \S+\)|https?://\S+", "", str(error))
    return f"{type(error).__name__}: {' '.join(text.split())}"


def error_of(action: Callable[[], object]) -> str:
    """The error that an action raises as one line, or `NO_ERROR`."""
    try:
        action()
    except Exception as error:
        return error_text(error)
    return NO_ERROR


def warning_and_error_of(action: Callable[[], object], pattern: str) -> tuple[str, str]:
    """The warning with this message and, where it is ignored, the error; the action runs for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=pattern)
        warning = error_of(action)
        warnings.filterwarnings("ignore", message=pattern)
        return warning, error_of(action)

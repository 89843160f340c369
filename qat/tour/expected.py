"""What an experiment may expect, and when a measured value meets it."""

import math
from dataclasses import dataclass
from typing import Any

RELATIVE = 1e-6  # float32 keeps seven digits; an expected 0 is met by an exact 0 alone


@dataclass(frozen=True)
class AtMost:
    """Expected: a number up to `limit`."""

    limit: float


@dataclass(frozen=True)
class Says:
    """Expected: a message that contains `text`."""

    text: str


def agrees(expected: Any, measured: Any) -> bool:
    """Whether a measured value is the expected one: numbers to six digits, everything else exactly."""
    if isinstance(expected, AtMost):
        return _is_number(measured) and measured <= expected.limit
    if isinstance(expected, Says):
        return isinstance(measured, str) and expected.text in measured
    if _is_number(expected) and _is_number(measured):
        return math.isclose(expected, measured, rel_tol=RELATIVE)
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(measured, type(expected))
            and len(expected) == len(measured)
            and all(map(agrees, expected, measured))
        )
    return type(expected) is type(measured) and bool(expected == measured)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

"""What an experiment may expect, and when a measured value agrees with it."""

import math
from dataclasses import dataclass
from typing import Any

RELATIVE = 1e-6  # float32 keeps seven digits; an expected 0 must be exactly 0


@dataclass(frozen=True)
class AtMost:
    """Expected: a number that is not greater than `limit`."""

    limit: float


@dataclass(frozen=True)
class Contains:
    """Expected: a message that contains `text`."""

    text: str


def agrees(expected: Any, measured: Any) -> bool:
    """Whether a measured value agrees with the expected one: numbers to six digits, all else exactly."""
    if isinstance(expected, AtMost):
        return _is_number(measured) and measured <= expected.limit
    if isinstance(expected, Contains):
        return isinstance(measured, str) and expected.text in measured
    if _is_number(expected) and _is_number(measured):
        return math.isclose(expected, measured, rel_tol=RELATIVE)
    if type(expected) is not type(measured):
        return False
    if isinstance(expected, (list, tuple)):
        return len(expected) == len(measured) and all(map(agrees, expected, measured))
    return bool(expected == measured)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

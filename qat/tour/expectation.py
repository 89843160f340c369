"""What an experiment may expect, and when a measured value agrees with it."""

import math
from typing import Any


def agrees(expected: Any, measured: Any) -> bool:
    """Whether a measured value agrees with the expected one: numbers to six digits, all else exactly.

    An expected `{"contains": text}` is a message with this text; `{"at most": limit}` is a number that is
    not greater than this one.
    """
    match expected, measured:
        case (bool(), _) | (_, bool()):
            return expected is measured
        case {"contains": text}, str():
            return text in measured
        case {"at most": limit}, int() | float():
            return bool(measured <= limit)
        case int() | float(), int() | float():
            return math.isclose(expected, measured, rel_tol=1e-6)  # of float32; 0 must be exactly 0
        case [*parts], [*others] if type(expected) is type(measured):
            return len(parts) == len(others) and all(map(agrees, parts, others))
    return type(expected) is type(measured) and bool(expected == measured)

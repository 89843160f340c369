"""Values as short text."""

from typing import Any

from torch import Tensor

from qat.tour.expectation import AtMost, Contains

LONGEST = 38  # characters of a tensor's elements
LONGEST_EXCERPT = 100  # characters of a message in the terminal; the page shows all of it


def number(x: float, digits: int = 4) -> str:
    """The shortest text with at most this many digits: 1, 0.1667, 1e-07; zero has no sign."""
    return f"{x + 0.0:.{digits}g}"


def short(x: Tensor) -> str:
    """The elements of a tensor where they fit, otherwise its shape."""
    if x.numel() == 1:
        return number(x.item())
    if x.dim() > 1:
        return "x".join(map(str, x.shape))
    for digits in (4, 3):
        text = f"[{', '.join(number(v, digits) for v in x.tolist())}]"
        if len(text) <= LONGEST:
            return text
    return f"{x.numel()} elements"


def readable(value: Any) -> str:
    """An expected or measured value as text: numbers with at most six digits."""
    if isinstance(value, AtMost):
        return f"at most {number(value.limit)}"
    if isinstance(value, Contains):
        return f"contains: {value.text}"
    if isinstance(value, list):
        return f"[{', '.join(map(readable, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(readable, value))})"
    return str(value) if value is None or isinstance(value, (bool, str)) else number(value, 6)


def excerpt(expected: Any, measured: Any) -> str:
    """The measured value as text that is not too long; of a long message, the part that was expected."""
    text = readable(measured)
    start = text.find(expected.text) if isinstance(expected, Contains) else 0
    if len(text) <= LONGEST_EXCERPT:
        return text
    end = max(start, 0) + LONGEST_EXCERPT
    return "... " * (start > 0) + text[max(start, 0) : end].rstrip() + " ..." * (end < len(text))

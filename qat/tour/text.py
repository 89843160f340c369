"""Values as short text."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from qat.tour.expected import AtMost, Says

LONGEST = 38  # characters of a tensor's elements


def number(x: float, digits: int = 4) -> str:
    """The shortest text of at most so many digits: 1, 0.1667, 1e-07; zero has no sign."""
    return f"{x + 0.0:.{digits}g}"


def short(x: Tensor, digits: int = 4) -> str:
    """A tensor's elements where they fit, else its shape."""
    if x.dim() > 1 and x.numel() > 1:
        return "x".join(map(str, x.shape))
    elements = [number(v, digits) for v in x.detach().flatten().tolist()]
    if x.numel() == 1:
        return elements[0]
    text = f"[{', '.join(elements)}]"
    if len(text) > LONGEST:
        text = f"[{', '.join(number(v, 3) for v in x.detach().flatten().tolist())}]"
    return text if len(text) <= LONGEST else f"{x.numel()} elements"


def readable(value: Any) -> str:
    """An expected or measured value: numbers short, truth values and text as they are."""
    if isinstance(value, AtMost):
        return f"at most {number(value.limit)}"
    if isinstance(value, Says):
        return f"contains: {value.text}"
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(value)
    if isinstance(value, Sequence):
        inside = ", ".join(map(readable, value))
        return f"({inside})" if isinstance(value, tuple) else f"[{inside}]"
    return number(value, 6)

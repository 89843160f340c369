"""Values as short text."""

from typing import Any

from torch import Tensor

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
    match value:
        case {"contains": text}:
            return f"contains: {text}"
        case {"at most": limit}:
            return f"at most {readable(limit)}"
        case [*parts]:
            text = ", ".join(map(readable, parts))
            return f"({text})" if isinstance(value, tuple) else f"[{text}]"
        case None | bool() | str():
            return str(value)
    return number(value, 6)


def excerpt(expected: Any, measured: Any) -> str:
    """The measured value as text that is not too long; of a long message, the part that was expected."""
    text = readable(measured)
    if len(text) <= LONGEST_EXCERPT:
        return text
    start = max(0, text.find(expected["contains"])) if isinstance(expected, dict) else 0
    end = start + LONGEST_EXCERPT
    return "... " * (start > 0) + text[start:end].rstrip() + " ..." * (end < len(text))

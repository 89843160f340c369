"""A number measured with several seeds, and how it is written."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

_JOINED = "\u00a0"  # a space at which no line breaks


@dataclass(frozen=True)
class Spread:
    """Mean, lowest and highest of the finite values; how many there are, and how many were not finite.

    Without a finite value the three are NaN.
    """

    mean: float
    low: float
    high: float
    count: int
    lost: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """The spread of `values`, in any order."""
        every = list(values)
        finite = [value for value in every if math.isfinite(value)]
        if not finite:
            return cls(math.nan, math.nan, math.nan, 0, len(every))
        low, high = min(finite), max(finite)
        # The sum's last bit could put the mean of equal values beside them.
        mean = min(max(math.fsum(finite) / len(finite), low), high)
        return cls(mean, low, high, len(finite), len(every) - len(finite))

    def overlaps(self, other: "Spread") -> bool:
        """Whether the two ranges share a value; no when either is empty."""
        return self.low <= other.high and other.low <= self.high

    def percent(self) -> str:
        """Mean and the largest distance of a value from it, `97.1 ± 0.2 %`; for one value the mean alone."""
        if not self.count:
            return "NaN"
        text = f"{100 * self.mean:.1f}"
        if self.count > 1:
            text += f"{_JOINED}±{_JOINED}{100 * max(self.high - self.mean, self.mean - self.low):.1f}"
        return f"{text}{_JOINED}%" + (f" ({self.lost} NaN)" if self.lost else "")


def points(difference: float) -> str:
    """A difference of two fractions in percentage points, without its sign."""
    size = abs(100 * difference)
    return "less than 0.1 points" if 0 < size < 0.05 else f"{size:.1f} points"


def short(value: float) -> str:
    """Three digits of a number of any size; an exact zero is `0`, what is not finite `NaN` or `inf`."""
    if value == 0:
        return "0"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if 0.001 <= abs(value) < 10000:
        digits = 2 - math.floor(math.log10(abs(value)))
        return f"{value:.{max(digits, 0)}f}"
    return re.sub(r"e([+-])0?", r"e\1", f"{value:.1e}")


def listing(names: Iterable[str]) -> str:
    """Names in a sentence: `a`, `b` and `c`, each marked as code."""
    marked = [f"`{name}`" for name in names]
    return " and ".join([", ".join(marked[:-1]), marked[-1]] if len(marked) > 1 else marked)


def numbered(noun: str, numbers: Iterable[int]) -> str:
    """Numbers in a sentence: seed 0; seeds 0, 1 and 2."""
    texts = [str(number) for number in numbers]
    if len(texts) == 1:
        return f"{noun} {texts[0]}"
    return f"{noun}s {', '.join(texts[:-1])} and {texts[-1]}"

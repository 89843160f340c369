"""A number measured with several seeds, and how numbers and names are written."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

_JOINED = "\u00a0"  # a space at which no line breaks


@dataclass(frozen=True)
class SeedSpread:
    """Mean, lowest and highest of the finite values; how many there are, and how many were not finite.

    Without a finite value the three are NaN.
    """

    mean: float
    low: float
    high: float
    count: int
    lost: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "SeedSpread":
        """The spread of `values`, in any order."""
        every = list(values)
        finite = [value for value in every if math.isfinite(value)]
        if not finite:
            return cls(math.nan, math.nan, math.nan, 0, len(every))
        low, high = min(finite), max(finite)
        # The last bit of the sum could move the mean of equal values out of their range.
        mean = min(max(math.fsum(finite) / len(finite), low), high)
        return cls(mean, low, high, len(finite), len(every) - len(finite))

    @property
    def is_zero(self) -> bool:
        """Whether there are values and all of them are exactly 0."""
        return self.count > 0 and self.low == self.high == 0 and not self.lost

    def overlaps(self, other: "SeedSpread") -> bool:
        """Whether the two ranges share a value; false when either is empty."""
        return self.low <= other.high and other.low <= self.high

    def percent(self) -> str:
        """Mean and largest distance of a value from it, `97.1 ± 0.2 %`; for one value the mean alone."""
        if not self.count:
            return "NaN"
        text = f"{100 * self.mean:.1f}"
        if self.count > 1:
            text += f"{_JOINED}±{_JOINED}{100 * max(self.high - self.mean, self.mean - self.low):.1f}"
        return f"{text}{_JOINED}%" + (f", {self.lost} NaN" if self.lost else "")


def points(difference: float) -> str:
    """A difference of two fractions in percentage points, without its sign."""
    size = abs(100 * difference)
    return "less than 0.1 points" if 0 < size < 0.05 else f"{size:.1f} points"


def short(value: float) -> str:
    """Three digits of a number of any size; an exact zero is `0`, what is not finite `NaN` or `inf`."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value}"
    if 0.001 <= abs(value) < 10000:
        return f"{value:.{max(2 - math.floor(math.log10(abs(value))), 0)}f}"
    return re.sub(r"e([+-])0?", r"e\1", f"{value:.1e}")


def joined(texts: Iterable[object]) -> str:
    """Texts in a sentence: `a`; `a and b`; `a, b and c`."""
    items = [str(text) for text in texts]
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def names(found: Iterable[str]) -> str:
    """Names in a sentence, each marked as code; of more than five the first three and a count."""
    marked = [f"`{name}`" for name in found]
    return joined(marked if len(marked) <= 5 else [*marked[:3], f"{len(marked) - 3} others"])


def seeds_text(seeds: Iterable[int]) -> str:
    """Seeds in a sentence: `seed 0`; `seeds 0, 1 and 2`."""
    numbers = list(seeds)
    return f"seed{'s' if len(numbers) > 1 else ''} {joined(numbers)}"


def sentence(parts: Iterable[str]) -> str:
    """Parts of a sentence, joined by semicolons, with a capital and a full stop."""
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "." if text else ""

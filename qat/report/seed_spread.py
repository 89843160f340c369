"""A number measured with several seeds, and numbers as text."""

import math
import re
from dataclasses import dataclass
from functools import cached_property
from statistics import mean

ABSENT = "-"


@dataclass(frozen=True)
class SeedSpread:
    """The values of all seeds; `low`, `mean` and `high` are those of the finite ones, NaN without any."""

    values: list[float]

    @cached_property
    def finite(self) -> list[float]:
        return [value for value in self.values if math.isfinite(value)]

    @property
    def low(self) -> float:
        return min(self.finite, default=math.nan)

    @cached_property
    def mean(self) -> float:
        return mean(self.finite) if self.finite else math.nan  # exact for equal values

    @property
    def high(self) -> float:
        return max(self.finite, default=math.nan)

    @property
    def is_zero(self) -> bool:
        """Whether there are values and all of them are exactly 0."""
        return bool(self.values) and not any(self.values)

    def percent(self) -> str:
        """Mean and largest distance of a value from it, `97.1 ± 0.2 %`; for one value the mean alone."""
        if not self.finite:
            return "NaN"
        lost = len(self.values) - len(self.finite)
        text = f"{100 * self.mean:.1f}{self._distance()}\u00a0%"
        return f"{text}, {lost} NaN" if lost else text

    def points(self) -> str:
        """A difference in points: its mean and the largest distance from it, `+1.2 ± 0.3`."""
        return f"{100 * self.mean:+.1f}{self._distance()}" if self.finite else ABSENT

    def _distance(self) -> str:
        distance = f"\u00a0±\u00a0{100 * max(self.high - self.mean, self.mean - self.low):.1f}"
        return distance if len(self.finite) > 1 else ""

    def __str__(self) -> str:
        return short(self.mean) if self.values else ABSENT


def short(value: float) -> str:
    """Three digits of a number of any size; an exact zero is `0`, what is not finite `NaN` or `inf`."""
    if value == 0 or not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value:g}"
    if 0.001 <= abs(value) < 10000:
        return f"{value:.{max(2 - math.floor(math.log10(abs(value))), 0)}f}"
    return re.sub(r"e([+-])0?", r"e\1", f"{value:.1e}")


def ratio(value: float, reference: float) -> float:
    """`value / reference`; NaN where that has no meaning."""
    return value / reference if reference > 0 else math.nan

"""What a tensor of the trained model is made of, in integers."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Shape = tuple[int, int, int]  # (C, H, W) of one sample; a vector is (C, 1, 1)


@dataclass(frozen=True)
class Codes:
    """A tensor on a grid: `(code - zero) * scale`.

    Args:
        step: which step gives the codes.
        shape: of one sample.
        scale: of all its elements.
        zero: the code of 0.0.
        low: the smallest code.
        high: the largest code.
    """

    step: int
    shape: Shape
    scale: float
    zero: int
    low: int
    high: int

    @property
    def bound(self) -> int:
        """The largest |code - zero|."""
        return max(abs(self.low - self.zero), abs(self.high - self.zero))


@dataclass(frozen=True)
class Term:
    """Integers of one step, as a part of a sum: `(integer - zero) * unit / divisor`.

    Args:
        step: which step gives them.
        unit: of each channel, `(C,)`.
        bound: the largest |integer - zero| of each channel, `(C,)`.
        zero: taken off first.
        divisor: how many were averaged.
    """

    step: int
    unit: Reals
    bound: Reals
    zero: int = 0
    divisor: int = 1


@dataclass(frozen=True)
class Sum:
    """A tensor between two grids: terms, a constant for each channel, and what a ReLU cuts off.

    Args:
        shape: of one sample.
        terms: what is added.
        offset: the constant, `(C,)`.
        low: no value is below.
        high: no value is above.
    """

    shape: Shape
    terms: tuple[Term, ...]
    offset: Reals
    low: float = field(default=-np.inf)
    high: float = field(default=np.inf)

    @property
    def is_cut(self) -> bool:
        """Whether a ReLU came last, so that only a quantizer may follow."""
        return (self.low, self.high) != (-np.inf, np.inf)

    def scaled(self, factor: Reals, offset: Reals) -> "Sum":
        """`self * factor + offset`, for each channel."""
        terms = tuple(replace(term, unit=term.unit * factor) for term in self.terms)
        return replace(self, terms=terms, offset=self.offset * factor + offset)

    def plus(self, other: "Sum") -> "Sum":
        """The sum of the two."""
        return replace(self, terms=self.terms + other.terms, offset=self.offset + other.offset)

    def cut(self, low: float, high: float) -> "Sum":
        """Values below `low` and above `high` become these."""
        return replace(self, low=max(self.low, low), high=min(self.high, high))


Value = Codes | Sum


def as_sum(value: Value) -> Sum:
    """A tensor on a grid as a sum of one term."""
    if isinstance(value, Sum):
        return value
    channels = value.shape[0]
    term = Term(value.step, np.full(channels, value.scale), np.full(channels, float(value.bound)), value.zero)
    return Sum(value.shape, (term,), np.zeros(channels))

"""What a tensor of the trained model is made of, in integers."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Shape = tuple[int, int, int]  # (C, H, W) of one image; a vector is (C, 1, 1)


@dataclass(frozen=True)
class QuantizedTensor:
    """A tensor on a grid: `(code - zero) * scale`."""

    step: int  # the step that gives the codes
    shape: Shape  # of one image
    scale: float
    zero: int  # the code of 0.0
    low: int  # the smallest code
    high: int  # the largest code

    @property
    def bound(self) -> int:
        """The largest |code - zero|."""
        return max(abs(self.low - self.zero), abs(self.high - self.zero))


@dataclass(frozen=True)
class SumTerm:
    """The integers of one step as a term of a sum: `(integer - zero) * unit / divisor`."""

    step: int  # the step that gives the integers
    unit: FloatArray  # the value of 1 in each channel, (C,)
    bound: FloatArray  # the largest |integer - zero| of each channel, (C,)
    zero: int = 0  # the integer of 0.0
    divisor: int = 1  # the number of elements, if the integers are sums for an average


@dataclass(frozen=True)
class Sum:
    """A tensor between two grids: terms, and a constant for each channel, clamped where a ReLU followed."""

    shape: Shape  # of one image
    terms: tuple[SumTerm, ...]  # they are added
    offset: FloatArray  # the constant, (C,)
    low: float = -np.inf  # the ends of the clamp
    high: float = np.inf

    @property
    def is_clamped(self) -> bool:
        """Whether an activation came last, so that only a quantizer may follow."""
        return (self.low, self.high) != (-np.inf, np.inf)

    def scaled(self, factor: FloatArray, offset: FloatArray) -> "Sum":
        """`self * factor + offset`, for each channel."""
        terms = tuple(replace(term, unit=term.unit * factor) for term in self.terms)
        return replace(self, terms=terms, offset=self.offset * factor + offset)

    def plus(self, other: "Sum") -> "Sum":
        return replace(self, terms=self.terms + other.terms, offset=self.offset + other.offset)

    def clamped(self, low: float, high: float) -> "Sum":
        return replace(self, low=max(self.low, low), high=min(self.high, high))


Value = QuantizedTensor | Sum


def as_sum(value: Value) -> Sum:
    """A tensor on a grid as a sum of one term."""
    if isinstance(value, Sum):
        return value
    channels = value.shape[0]
    bound = np.full(channels, float(value.bound))
    term = SumTerm(value.step, np.full(channels, value.scale), bound, value.zero)
    return Sum(value.shape, (term,), np.zeros(channels))

"""The numbers of a rescaling: from sums in many units to one grid by multiplication, addition and shift."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qat.export.onnx.values import Reals, Sum

LIMIT = 2.0**62  # of what an int64 holds while it is computed
LARGEST_SHIFT = 60
FINEST = 20  # bits behind the point of a code: rounding a multiplier moves no term by more than 2^-21 of one
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Multipliers:
    """`code = round((sum of term * multiplier + bias * 2^lift) / (divisor * 2^shift))`, half to even.

    Args:
        multiplier: of each term and channel, `(terms, C)`, |.| < 2^31; for powers of two, powers of two: with
            one term 1, and the rescaling is a shift.
        bias: of each channel, int32, `(C,)`.
        lift: how far all biases are shifted up.
        shift: of each channel, 0 to 60, with divisor * 2^shift < 2^62, `(C,)`.
        divisor: of an average over a number that is no power of two; else 1.
        exact: whether nothing was rounded here.
    """

    multiplier: Integers
    bias: Integers
    lift: int
    shift: Integers
    divisor: int
    exact: bool


def multipliers(value: Sum, scale: float) -> Multipliers:
    """The numbers that bring a sum to the grid with a scale.

    Raises:
        ValueError: the sum adds an average over a number of elements that is no power of two to something.
    """
    divisors = {term.divisor for term in value.terms}
    if len(divisors) > 1:
        raise ValueError("adds averages over different numbers of elements")
    (divisor,) = divisors
    # (terms, C), in codes; the average's division by an odd number is left for the end, where it is exact.
    odd = divisor // (divisor & -divisor)
    ratios = np.array([term.unit / (scale * (divisor // odd)) for term in value.terms])
    bounds = np.array([term.bound for term in value.terms])
    ratios = np.where(bounds > 0, ratios, 0.0)  # a channel of zeros, whatever its unit
    offset = value.offset / scale * odd
    return _exact(ratios, bounds, offset, odd) or _rounded(ratios, bounds, offset, odd)


def _exact(ratios: Reals, bounds: Reals, offset: Reals, odd: int) -> Multipliers | None:
    """Where all units are powers of two, and a shift makes every number an integer."""
    if not (np.abs(np.frexp(ratios)[0]) % 0.5 == 0).all():
        return None
    lowest = np.minimum(np.array([_lowest_bit(r) for r in ratios]).min(axis=0), _lowest_bit(offset))
    shift = np.maximum(0, -lowest)
    multiplier, bias = np.ldexp(ratios, shift), np.ldexp(offset, shift)
    fits = (np.abs(multiplier) < 2**31).all() and (np.abs(bias) < 2**31).all()
    if not fits or (shift > _largest_shift(odd)).any() or (_largest(multiplier, bounds, bias) >= LIMIT).any():
        return None
    return Multipliers(multiplier.astype(np.int64), bias.astype(np.int64), 0, shift, odd, True)


def _lowest_bit(x: Reals) -> Integers:
    """The exponent of the lowest bit that is set; 0 for 0."""
    mantissa, exponent = np.frexp(x)
    whole = np.ldexp(np.abs(mantissa), 53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.where(x == 0, 0, exponent - 53 + lowest).astype(np.int64)


def _rounded(ratios: Reals, bounds: Reals, offset: Reals, odd: int) -> Multipliers:
    """Multipliers of 31 bits; of fewer where an int64 could overflow, or where fewer give `FINEST`."""
    largest = np.abs(ratios).max(axis=0)
    shift = 30 - np.floor(np.log2(np.where(largest > 0, largest, 1.0)))
    # All biases share one lift: a tiny multiplier, shifted far up, would cost the other channels theirs.
    enough = np.ceil(np.log2(np.maximum(bounds.max(axis=0), 1.0))) + FINEST
    shift = np.clip(np.minimum(shift, enough), 0, _largest_shift(odd))
    while True:
        multiplier, bias = np.rint(np.ldexp(ratios, shift.astype(int))), np.ldexp(offset, shift.astype(int))
        over = (_largest(multiplier, bounds, bias) >= LIMIT) | (np.abs(multiplier) >= 2**31).any(axis=0)
        if not over.any():
            break
        shift -= over
        if (shift < 0).any():
            raise ValueError("numbers that 62 bits do not hold")
    lift = max(0, int(np.ceil(np.log2(np.abs(bias).max() + 1))) - 30)
    bias = np.rint(np.ldexp(bias, -lift))
    whole = (array.astype(np.int64) for array in (multiplier, bias, shift))
    first, second, third = whole
    return Multipliers(first, second, lift, third, odd, False)


def _largest_shift(odd: int) -> int:
    return min(LARGEST_SHIFT, 62 - odd.bit_length())


def _largest(multiplier: Reals, bounds: Reals, bias: Reals) -> Reals:
    largest: Reals = (np.abs(multiplier) * bounds).sum(axis=0) + np.abs(bias)
    return largest

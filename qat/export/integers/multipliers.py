"""The numbers of a rescaling: from a sum to one grid by multiplication, addition and shift."""

from dataclasses import dataclass

import numpy as np

from qat.export.integers.program import IntArray
from qat.export.integers.values import FloatArray, Sum

LIMIT = 2.0**62  # of every number in an int64
LARGEST_SHIFT = 60
FRACTION_BITS = 20  # of a code: rounding a multiplier moves no term by more than 2^-21 of a code


@dataclass(frozen=True)
class Multipliers:
    """`code = round((sum of term * multiplier + bias * 2^lift) / (divisor * 2^shift))`, half to even.

    If all scales are powers of two, so are the multipliers; with one term they are 1, and the rescaling is a
    shift.
    """

    multiplier: IntArray  # (terms, C), of magnitude below 2^31
    bias: IntArray  # (C,), int32
    lift: int  # the left shift of all biases
    shift: IntArray  # (C,), 0 to 60, with divisor * 2^shift < 2^62
    divisor: int  # the odd factor of the number of elements of an average; otherwise 1
    exact: bool  # whether nothing was rounded here


def multipliers(value: Sum, scale: float) -> Multipliers:
    """The numbers that rescale a sum to the grid with a scale; a ValueError if there are none."""
    divisors = {term.divisor for term in value.terms}
    if len(divisors) > 1:
        raise ValueError("adds averages over different numbers of elements")
    (divisor,) = divisors
    # The division by the odd factor comes last, where it is exact.
    odd = divisor // (divisor & -divisor)
    units = np.array([term.unit for term in value.terms])
    bounds = np.array([term.bound for term in value.terms])
    ratios = units / (scale * (divisor // odd))  # (terms, C), in codes
    ratios = np.where(bounds > 0, ratios, 0.0)  # a channel of zeros is 0 in any unit
    offset = value.offset / scale * odd
    return _exact(ratios, bounds, offset, odd) or _rounded(ratios, bounds, offset, odd)


def _exact(ratios: FloatArray, bounds: FloatArray, offset: FloatArray, odd: int) -> Multipliers | None:
    """The numbers, if all units are powers of two and a shift makes every number an integer."""
    if not (np.abs(np.frexp(ratios)[0]) % 0.5 == 0).all():
        return None
    lowest = np.minimum(np.array([_lowest_bit(r) for r in ratios]).min(axis=0), _lowest_bit(offset))
    shift = np.maximum(0, -lowest)
    multiplier, bias = np.ldexp(ratios, shift), np.ldexp(offset, shift)
    fits = (np.abs(multiplier) < 2**31).all() and (np.abs(bias) < 2**31).all()
    if not fits or (shift > _largest_shift(odd)).any() or (_largest(multiplier, bounds, bias) >= LIMIT).any():
        return None
    return Multipliers(multiplier.astype(np.int64), bias.astype(np.int64), 0, shift, odd, True)


def _lowest_bit(x: FloatArray) -> IntArray:
    """The exponent of the lowest bit that is set; 0 for 0."""
    mantissa, exponent = np.frexp(x)
    whole = np.ldexp(np.abs(mantissa), 53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.where(x == 0, 0, exponent - 53 + lowest).astype(np.int64)


def _rounded(ratios: FloatArray, bounds: FloatArray, offset: FloatArray, odd: int) -> Multipliers:
    """Multipliers of 31 bits; of fewer if an int64 could overflow, or if fewer give `FRACTION_BITS`."""
    largest = np.abs(ratios).max(axis=0)
    shift = 30 - np.floor(np.log2(np.where(largest > 0, largest, 1.0)))
    # All biases share one lift, so a large shift for a tiny multiplier costs the other channels precision.
    enough = np.ceil(np.log2(np.maximum(bounds.max(axis=0), 1.0))) + FRACTION_BITS
    shift = np.clip(np.minimum(shift, enough), 0, _largest_shift(odd))
    while True:
        multiplier, bias = np.rint(np.ldexp(ratios, shift.astype(int))), np.ldexp(offset, shift.astype(int))
        over = (_largest(multiplier, bounds, bias) >= LIMIT) | (np.abs(multiplier) >= 2**31).any(axis=0)
        if not over.any():
            break
        shift -= over
        if (shift < 0).any():
            raise ValueError("needs numbers of more than 62 bits")
    lift = max(0, int(np.ceil(np.log2(np.abs(bias).max() + 1))) - 30)
    bias = np.rint(np.ldexp(bias, -lift))
    return Multipliers(
        multiplier.astype(np.int64), bias.astype(np.int64), lift, shift.astype(np.int64), odd, False
    )


def _largest_shift(odd: int) -> int:
    return min(LARGEST_SHIFT, 62 - odd.bit_length())


def _largest(multiplier: FloatArray, bounds: FloatArray, bias: FloatArray) -> FloatArray:
    largest: FloatArray = (np.abs(multiplier) * bounds).sum(axis=0) + np.abs(bias)
    return largest

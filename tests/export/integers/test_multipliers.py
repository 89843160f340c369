"""Rescaling numbers, against exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from qat.export.integers import reader
from qat.export.integers.multipliers import Multipliers, multipliers
from qat.export.integers.values import Sum, SumTerm


def rescaled(numbers: Multipliers, integers: list[list[int]]) -> np.ndarray:
    """The codes of one image of one place; integers: of each term, of each channel."""
    inputs = [np.array(values).reshape(1, -1, 1, 1) for values in integers]
    step = {"lift": numbers.lift, "divisor": numbers.divisor, "zeros": [0] * len(inputs), "zero": 0}
    grid = {"low": -(2**31), "high": 2**31}
    codes = reader.rescale(inputs, step | grid, numbers.multiplier, numbers.bias, numbers.shift)
    return codes.reshape(-1)


def one(unit: list[float], offset: list[float], divisor: int = 1, bound: float = 2.0**20) -> Sum:
    shape = (len(unit), 1, 1)
    term = SumTerm(0, np.array(unit), np.full(len(unit), bound), divisor=divisor)
    return Sum(shape, (term,), np.array(offset))


def test_powers_of_two_are_a_shift() -> None:
    numbers = multipliers(one([2.0**-9, 2.0**-7], [3 * 2.0**-9, 0.0]), 0.25)
    assert numbers.exact
    assert numbers.multiplier.tolist() == [[1, 1]]
    assert numbers.shift.tolist() == [7, 5]
    assert numbers.bias.tolist() == [3, 0]


@pytest.mark.parametrize(("integer", "code"), [(64, 0), (192, 2), (320, 2), (-64, 0), (-192, -2), (65, 1)])
def test_halves_go_to_even(integer: int, code: int) -> None:
    numbers = multipliers(one([2.0**-9], [0.0]), 0.25)  # 128 to a code
    assert rescaled(numbers, [[integer]]).tolist() == [code]


@pytest.mark.parametrize("divisor", [9, 12, 49])
def test_averages_over_odd_numbers_keep_their_ties(divisor: int) -> None:
    numbers = multipliers(one([0.5], [0.0], divisor), 1.0)
    assert numbers.exact
    for total in range(-200, 200):
        assert rescaled(numbers, [[total]]).tolist() == [round(Fraction(total, 2 * divisor))]


def test_free_scales_are_right_to_31_bits() -> None:
    random = np.random.default_rng(0)
    unit, offset = random.uniform(1e-5, 1e-2, 50), random.normal(0, 3, 50)
    unit[::3] *= -1  # a negative gamma
    numbers = multipliers(one(list(unit), list(offset)), 0.037)
    assert not numbers.exact
    assert numbers.multiplier.max() < 2**31
    integers = random.integers(-(2**20), 2**20, 50)
    expected = (integers * unit + offset) / 0.037
    assert np.abs(rescaled(numbers, [list(integers)]) - expected).max() <= 0.5 + 1e-4


def test_a_channel_of_zeros_gives_its_bias() -> None:
    value = one([1e-40, 2.0**-8], [2.0, 0.0])
    value.terms[0].bound[0] = 0
    numbers = multipliers(value, 2.0**-4)
    assert numbers.exact
    assert rescaled(numbers, [[0, 0]]).tolist() == [32, 0]


def test_a_sum_in_two_units() -> None:
    terms = (
        SumTerm(0, np.array([2.0**-8]), np.array([2.0**16])),
        SumTerm(1, np.array([2.0**-5]), np.array([255.0])),
    )
    numbers = multipliers(Sum((1, 1, 1), terms, np.zeros(1)), 2.0**-4)
    assert numbers.multiplier.tolist() == [[1], [8]]
    assert rescaled(numbers, [[100], [30]]).tolist() == [round((100 * 2.0**-8 + 30 * 2.0**-5) * 16)]


def test_averages_of_different_sizes_do_not_add() -> None:
    terms = tuple(SumTerm(0, np.ones(1), np.ones(1), divisor=d) for d in (4, 9))
    with pytest.raises(ValueError, match="averages over different numbers"):
        multipliers(Sum((1, 1, 1), terms, np.zeros(1)), 1.0)


@pytest.mark.parametrize("divisor", [9, 25, 49, 841])
def test_a_tiny_unit_beside_an_average_over_an_odd_number(divisor: int) -> None:
    unit = np.array([1e-9, 0.37])
    numbers = multipliers(one(list(unit), [0.3, 0.3], divisor, bound=2.0**16), 0.01)
    assert all(numbers.divisor << int(shift) < 2**62 for shift in numbers.shift)
    for total in (-60_000, -1, 0, 1, 60_000):
        expected = (total * unit / divisor + 0.3) / 0.01
        assert np.abs(rescaled(numbers, [[total, total]]) - expected).max() <= 0.5 + 1e-4


def test_the_reader_holds_what_c_holds() -> None:
    numbers = Multipliers(np.array([[1]]), np.array([0]), 0, np.array([59]), 9, True)  # 9 * 2^59 > 2^62
    assert rescaled(numbers, [[9 * 2**58 + 1]]).tolist() == [1]
    assert rescaled(numbers, [[9 * 2**58]]).tolist() == [0]

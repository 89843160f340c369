"""Numbers as the report writes them."""

import math

import pytest

from qat.report.spread import Spread, listing, numbered, points, short


def test_spread_counts_what_is_not_finite():
    spread = Spread.of([0.5, math.nan, 0.75, math.inf])
    assert spread == Spread(0.625, 0.5, 0.75, 2, 2)


def test_mean_of_equal_values_is_that_value():
    assert Spread.of([0.1] * 3) == Spread(0.1, 0.1, 0.1, 3, 0)


def test_overlap_includes_a_common_end():
    assert Spread.of([1, 2]).overlaps(Spread.of([2, 3]))
    assert not Spread.of([1, 2]).overlaps(Spread.of([2.1, 3]))
    assert not Spread.of([1, 2]).overlaps(Spread.of([math.nan]))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.971], "97.1 %"),
        ([0.9, 0.9, 0.96], "92.0 ± 4.0 %"),
        ([0.5, math.nan], "50.0 % (1 NaN)"),
        ([math.nan], "NaN"),
        ([0.0], "0.0 %"),
    ],
)
def test_percent(values, text):
    assert Spread.of(values).percent().replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (5e-324, "4.9e-324"),
        (1e-7, "1.0e-7"),
        (0.00123, "0.00123"),
        (12.34, "12.3"),
        (9876.0, "9876"),
        (1e10, "1.0e+10"),
        (math.nan, "NaN"),
        (math.inf, "inf"),
    ],
)
def test_short(value, text):
    assert short(value) == text


def test_points_never_round_a_difference_to_nothing():
    assert points(0.0001) == "less than 0.1 points"
    assert points(-0.0123) == "1.2 points"
    assert points(0.0) == "0.0 points"


def test_lists_in_sentences():
    assert [listing("a"), listing("ab"), listing("abc")] == ["`a`", "`a` and `b`", "`a`, `b` and `c`"]
    assert [numbered("seed", [3]), numbered("seed", [0, 1, 2])] == ["seed 3", "seeds 0, 1 and 2"]

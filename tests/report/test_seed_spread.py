"""Numbers of several seeds, and numbers as the report writes them."""

import math

import pytest

from qat.report.seed_spread import SeedSpread, ratio, short


def test_mean_and_range_are_those_of_the_finite_values():
    spread = SeedSpread([0.5, math.nan, 0.75, math.inf])
    assert (spread.mean, spread.low, spread.high, spread.finite) == (0.625, 0.5, 0.75, [0.5, 0.75])
    assert all(math.isnan(getattr(SeedSpread([math.nan]), name)) for name in ("low", "mean", "high"))


def test_the_mean_of_equal_values_is_that_value():
    assert SeedSpread([0.1] * 3).mean == 0.1


def test_zero_is_exact_and_complete():
    assert SeedSpread([0.0, -0.0]).is_zero
    for values in ([], [0.0, 5e-324], [0.0, math.nan]):
        assert not SeedSpread(values).is_zero


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.971], "97.1 %"),
        ([0.9, 0.9, 0.96], "92.0 ± 4.0 %"),
        ([0.5, math.nan], "50.0 %, 1 NaN"),
        ([math.nan], "NaN"),
        ([0.0], "0.0 %"),
    ],
)
def test_percent(values, text):
    assert SeedSpread(values).percent().replace("\u00a0", " ") == text


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
        (-math.inf, "-inf"),
    ],
)
def test_short(value, text):
    assert short(value) == text


def test_text_of_a_spread():
    assert [str(SeedSpread(values)) for values in ([], [math.nan], [0.5, 0.25])] == ["-", "NaN", "0.375"]


def test_a_ratio_to_nothing_is_nan():
    assert ratio(1, 2) == 0.5
    assert math.isnan(ratio(1, 0))
    assert math.isnan(ratio(1, math.nan))

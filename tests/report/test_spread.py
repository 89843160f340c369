"""Numbers and names as the report writes them."""

import math

import pytest

from qat.report.spread import SeedSpread, joined, names, points, seeds_text, sentence, short


def test_a_spread_counts_what_is_not_finite():
    assert SeedSpread.of([0.5, math.nan, 0.75, math.inf]) == SeedSpread(0.625, 0.5, 0.75, 2, 2)


def test_the_mean_of_equal_values_is_that_value():
    assert SeedSpread.of([0.1] * 3) == SeedSpread(0.1, 0.1, 0.1, 3, 0)


def test_zero_is_exact_and_complete():
    assert SeedSpread.of([0.0, -0.0]).is_zero
    for values in ([], [0.0, 5e-324], [0.0, math.nan]):
        assert not SeedSpread.of(values).is_zero


def test_overlap_includes_a_common_end():
    assert SeedSpread.of([1, 2]).overlaps(SeedSpread.of([2, 3]))
    assert not SeedSpread.of([1, 2]).overlaps(SeedSpread.of([2.1, 3]))
    assert not SeedSpread.of([1, 2]).overlaps(SeedSpread.of([math.nan]))


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
    assert SeedSpread.of(values).percent().replace("\u00a0", " ") == text


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


def test_points_never_round_a_difference_to_nothing():
    assert [points(value) for value in (0.0001, -0.0123, 0.0)] == [
        "less than 0.1 points",
        "1.2 points",
        "0.0 points",
    ]


def test_lists_in_sentences():
    assert [joined("a"), joined("ab"), names("abc")] == ["a", "a and b", "`a`, `b` and `c`"]
    assert names("abcdef") == "`a`, `b`, `c` and 3 others"
    assert [seeds_text([3]), seeds_text([0, 1, 2])] == ["seed 3", "seeds 0, 1 and 2"]
    assert [sentence(["one", "two"]), sentence([])] == ["One; two.", ""]

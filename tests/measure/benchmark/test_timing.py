"""The figures of a row, worked out by hand."""

from qat.measure.benchmark.timing import Timing


def test_median_and_spread() -> None:
    timing = Timing("a", seconds=[5.0, 1.0, 2.0, 3.0, 4.0])
    assert (timing.median, timing.spread) == (3.0, 2.0)
    assert Timing("a", seconds=[7.0]).spread == 0.0


def test_a_ratio_compares_within_each_round() -> None:
    # The machine slowed down threefold after the first round; the ratio stays 2.
    slow, quick = Timing("slow", seconds=[2.0, 6.0, 6.0]), Timing("quick", seconds=[1.0, 3.0, 3.0])
    assert slow.ratio(quick) == 2.0
    assert slow.ratio(slow) == 1.0

"""What is called when, and the figures of a row."""

import gc
from collections.abc import Callable

import pytest
import torch

from qat.measure import rounds
from qat.measure.rounds import FIRST_CALLS, Candidate, TimedCall, Timing, measure, quartiles, rotate


def noting(name: str, calls: list[str], package: str | None = None) -> Candidate:
    return Candidate(name, lambda: TimedCall(lambda: calls.append(name), lambda: "eager"), package)


def fail() -> TimedCall:
    raise ValueError("first line\nsecond line")


@pytest.fixture(autouse=True)
def _one_call_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST", 1)


def test_each_round_runs_all_in_an_order_that_rotates() -> None:
    calls: list[str] = []
    timings = measure("t", [noting(name, calls) for name in "abc"], 4, "cpu")
    assert "".join(calls[3 * (FIRST_CALLS + 2) :]) == "abcbcacababc"
    assert [timing.name for timing in timings] == ["a", "b", "c"]
    assert {len(timing.seconds) for timing in timings} == {4}
    assert {timing.path for timing in timings} == {"eager"}


def test_no_garbage_is_collected_within_a_round() -> None:
    assert [gc.isenabled() for _ in rotate("ab", 2)] == [False, False]
    assert gc.isenabled()


def test_what_is_missing_or_fails_leaves_the_others_alone() -> None:
    calls: list[str] = []
    absent = noting("absent", calls, package="no_such_package")
    timings = measure("t", [absent, Candidate("broken", fail), noting("good", calls)], 2, "cpu")
    missing = 'no_such_package is not installed: python -m pip install --editable ".[bench]"'
    assert timings[0].missing == missing
    assert timings[1].error == "ValueError: first line"
    assert [timing.absence for timing in timings[:2]] == [
        f"absent: {missing}",
        "broken: failed: ValueError: first line",
    ]
    assert [len(timing.seconds) for timing in timings] == [0, 0, 2]
    assert set(calls) == {"good"}


def test_a_short_call_is_repeated_within_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST", 7)
    calls: list[str] = []
    measure("t", [noting("a", calls)], 2, "cpu")
    assert len(calls) == FIRST_CALLS + 2 + 2 * 7


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_waited_for() -> None:
    x = torch.rand(4096, 4096, device="cuda")
    multiply: Callable[[], object] = lambda: x @ x  # noqa: E731
    seconds = rounds.seconds_of(multiply, 10, "cuda")
    assert seconds > 1e-4  # 1.4e11 operations take longer on any GPU; their launch does not


def test_median_and_spread() -> None:
    timing = Timing("a", seconds=[5.0, 1.0, 2.0, 3.0, 4.0])
    assert (timing.median, timing.spread) == (3.0, 2.0)
    assert Timing("a", seconds=[7.0]).spread == 0.0


def test_a_ratio_compares_within_each_round() -> None:
    # The machine slowed down threefold after the first round; the ratio stays 2.
    slow, quick = Timing("slow", seconds=[2.0, 6.0, 6.0]), Timing("quick", seconds=[1.0, 3.0, 3.0])
    assert slow.ratio(quick) == 2.0
    assert slow.ratio(slow) == 1.0
    own, other = Timing("own", seconds=[1.5, 20.0, 2.0]), Timing("other", seconds=[1.0, 10.0, 2.0])
    assert quartiles(own.ratios(other)) == [1.25, 1.5, 1.75]

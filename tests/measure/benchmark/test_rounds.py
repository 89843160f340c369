"""What is called when."""

from collections.abc import Callable

import pytest
import torch

from qat.measure.benchmark import rounds
from qat.measure.benchmark.candidate import Candidate, Work
from qat.measure.benchmark.rounds import FIRST_CALLS, measure, turns

CPU = torch.device("cpu")


def noting(name: str, calls: list[str], package: str | None = None) -> Candidate:
    return Candidate(name, lambda: Work(lambda: calls.append(name), lambda: "eager"), package)


def fail() -> Work:
    raise ValueError("first line\nsecond line")


@pytest.fixture(autouse=True)
def _one_call_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST", 1)


def test_each_round_runs_all_in_an_order_that_rotates() -> None:
    calls: list[str] = []
    timings = measure([noting(name, calls) for name in "abc"], 4, CPU, lambda text: None)
    assert "".join(calls[3 * (FIRST_CALLS + 2) :]) == "abcbcacababc"
    assert [timing.name for timing in timings] == ["a", "b", "c"]
    assert {len(timing.seconds) for timing in timings} == {4}
    assert {timing.path for timing in timings} == {"eager"}


def test_what_is_missing_or_fails_leaves_the_others_alone() -> None:
    calls: list[str] = []
    absent = noting("absent", calls, package="no_such_package")
    timings = measure([absent, Candidate("broken", fail), noting("good", calls)], 2, CPU, lambda text: None)
    assert (
        timings[0].missing == 'no_such_package is not installed: python -m pip install --editable ".[bench]"'
    )
    assert timings[1].error == "ValueError: first line"
    assert [len(timing.seconds) for timing in timings] == [0, 0, 2]
    assert set(calls) == {"good"}


def test_it_shows_every_turn() -> None:
    shown: list[str] = []
    measure([noting("a", []), Candidate("broken", fail)], 3, CPU, shown.append)
    assert len(shown) == turns(2, 3)
    assert shown[0] == "first calls: a"
    assert shown[-1] == "round 3 of 3: broken"


def test_a_short_call_is_repeated_within_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST", 7)
    calls: list[str] = []
    measure([noting("a", calls)], 2, CPU, lambda text: None)
    assert len(calls) == FIRST_CALLS + 2 + 2 * 7


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_waited_for() -> None:
    x = torch.rand(4096, 4096, device="cuda")
    multiply: Callable[[], object] = lambda: x @ x  # noqa: E731
    seconds = rounds.seconds_of(multiply, 10, torch.device("cuda"))
    assert seconds > 1e-4  # 1.4e11 operations take longer on any GPU; their launch does not

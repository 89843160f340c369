"""Calls in fresh processes."""

import os
from pathlib import Path

import pytest
import torch

from qat.measure.fresh_process import call_in_fresh_process


def whereabouts(*arguments: object) -> list[object]:
    """What the process knows of itself."""
    print("a remark")
    return [os.getpid(), torch.get_num_threads(), os.environ.get("QAT_TEST"), *arguments]


def fail() -> None:
    raise MemoryError("much\nmore")


def die() -> None:
    os._exit(9)


def test_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    own, threads = os.getpid(), torch.get_num_threads()
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setattr(whereabouts, "__module__", "test_fresh_process")
    process, *others = call_in_fresh_process(whereabouts, "a", [1, None], QAT_TEST="yes")
    assert process != own
    assert others == [threads, "yes", "a", [1, None]]


@pytest.mark.parametrize(
    ("function", "message"), [(fail, "^more$"), (die, "^exit code 9 without a message$")]
)
def test_a_failure_is_one_line(function: object, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setattr(function, "__module__", "test_fresh_process")
    with pytest.raises(ChildProcessError, match=message):
        call_in_fresh_process(function)  # type: ignore[arg-type]

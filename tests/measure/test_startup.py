"""The cost of the first steps, and the processes that measure it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from qat.measure import startup
from qat.measure.startup import STARTUP_MODES, extra_seconds, measure_startup
from qat.measure.workload import Workload

WORKLOAD = Workload("small_cnn", (1, 28, 28), 2)


def test_extra() -> None:
    assert extra_seconds([9.0, 1.5, 1.0, 1.0, 1.0, 2.0]) == 8.5


def test_the_second_process_finds_the_cache_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []

    def call(function: object, workload: dict[str, Any], name: str, **environment: str) -> dict[str, Any]:
        folder = environment["TORCHINDUCTOR_CACHE_DIR"]
        assert Path(folder).is_dir()
        assert (function, workload) == (startup.first_use, asdict(WORKLOAD))
        calls.append((name, folder))
        return {"kernels": 7.0, "steps": [3.0, 1.0]}

    monkeypatch.setattr(startup, "call_in_fresh_process", call)
    announced: list[str] = []
    rows = measure_startup(WORKLOAD, announced.append)
    use = {"kernels": 7.0, "steps": [3.0, 1.0]}
    assert rows == [{"name": name, "uses": {"cold": use, "warm": use}, "error": ""} for name in STARTUP_MODES]
    assert calls[::2] == calls[1::2]
    assert [name for name, _ in calls[::2]] == list(STARTUP_MODES)
    assert len({folder for _, folder in calls}) == len(STARTUP_MODES)
    assert not any(Path(folder).exists() for _, folder in calls)
    assert len(announced) == len(STARTUP_MODES) * 2


def test_a_process_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ChildProcessError("ValueError: no compiler")

    monkeypatch.setattr(startup, "call_in_fresh_process", fail)
    assert {row["error"] for row in measure_startup(WORKLOAD, lambda _: None)} == {"ValueError: no compiler"}


@pytest.mark.parametrize(("mode", "compiles"), [("qat", ["cpu"]), ("float", [])])
def test_the_first_steps_of_a_process(
    mode: str, compiles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[str] = []
    monkeypatch.setattr(startup, "build_kernels", devices.append)
    monkeypatch.setattr(startup, "STEPS", 3)
    use = startup.first_use(asdict(WORKLOAD), mode)
    assert devices == compiles
    assert len(use["steps"]) == 3
    assert min(use["steps"]) > use["kernels"] > 0


@pytest.mark.slow
def test_fresh_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "STARTUP_MODES", ("float",))
    (row,) = measure_startup(WORKLOAD, lambda _: None)
    assert row["error"] == ""
    assert {cache: len(use["steps"]) for cache, use in row["uses"].items()} == {"cold": 20, "warm": 20}

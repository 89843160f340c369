"""The cost of the first steps, and the processes that measure it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from qat.measure.benchmark import first_use, startup
from qat.measure.benchmark.startup import FirstUse, measure_startup

CPU = torch.device("cpu")


def test_extra() -> None:
    assert FirstUse(5.0, [9.0, 1.5, 1.0, 1.0, 1.0, 2.0]).extra == 8.5


def test_the_second_process_finds_the_cache_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    def run(command: list[str], env: dict[str, str], **_: Any) -> Any:
        folder = Path(env["TORCHINDUCTOR_CACHE_DIR"])
        assert folder.is_dir()
        assert env.items() >= {k: v for k, v in os.environ.items() if k != "TORCHINDUCTOR_CACHE_DIR"}.items()
        folders.append(folder)
        return subprocess.CompletedProcess(
            command, 0, 'a remark\n{"kernels": 7.0, "steps": [3.0, 1.0]}\n', ""
        )

    monkeypatch.setattr(subprocess, "run", run)
    shown: list[str] = []
    rows = measure_startup("small_cnn", 4, CPU, shown.append)
    use = FirstUse(7.0, [3.0, 1.0])
    assert [row.uses for row in rows] == [{"cold": use, "warm": use}] * len(startup.MODES)
    assert folders[::2] == folders[1::2]
    assert len(set(folders)) == len(startup.MODES)
    assert not any(folder.exists() for folder in folders)
    assert len(shown) == len(startup.MODES) * 2


def test_a_process_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "Traceback\nValueError: no compiler\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    rows = measure_startup("small_cnn", 4, CPU, lambda text: None)
    assert {row.error for row in rows} == {"ValueError: no compiler"}


@pytest.mark.parametrize(("mode", "compiles"), [("qat", ["cpu"]), ("float", [])])
def test_the_first_steps_of_a_process(
    mode: str, compiles: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    devices: list[str] = []
    monkeypatch.setattr(first_use, "build_kernels", devices.append)
    first_use.main([mode, "small_cnn", "2", "3", "1", "cpu"])
    use = FirstUse(**json.loads(capsys.readouterr().out))
    assert devices == compiles
    assert len(use.steps) == 3
    assert min(use.steps) > use.kernels > 0


@pytest.mark.slow
def test_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "MODES", ("float",))
    (row,) = measure_startup("small_cnn", 2, CPU, lambda text: None)
    assert row.error == ""
    assert {cache: len(use.steps) for cache, use in row.uses.items()} == {"cold": 20, "warm": 20}

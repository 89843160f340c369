"""The script from the outside."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark.py"


def start(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setenv("QAT_COMPILE", "0")
    monkeypatch.setenv("KINETO_LOG_LEVEL", "5")
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_it_prints_a_table_and_writes_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tiny = ["--size", "2", "2", "5", "5", "--rounds", "2", "--only", "x *", "torch, per tensor"]
    start(monkeypatch, "--ops", *tiny, "--out", str(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("torch, per tensor") for line in lines)
    assert lines[-1] == f"written to {tmp_path}"
    assert (tmp_path / "ops.json").is_file()


def test_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        start(monkeypatch, "--help")
    assert stop.value.code == 0
    out = capsys.readouterr().out
    options = ("--ops", "--scaling", "--steps", "--profile", "--startup", "--device", "--rounds", "--out")
    assert [name for name in options if name not in out] == []

"""The script from the outside."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from qat.measure import memory_study
from qat.measure.growth import Growth
from qat.measure.modes import MEMORY_MODES

SCRIPT = Path(__file__).parents[2] / "scripts" / "memory.py"


def test_a_small_study(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # Six processes would take longer than all the rest; tests/measure/test_growth.py starts one.
    monkeypatch.setattr(memory_study, "growth", lambda _w, _name, size: Growth(10**6 * size, 10**5 * size))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("QAT_COMPILE", "0")
    monkeypatch.chdir(tmp_path)
    arguments = ["--model", "resnet8", "--image", "3", "8", "8", "--batch", "4", "--rounds", "3"]
    arguments += ["--scale", "learned", "--depth", "1", "2", "--budget", "1GB"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    out, _ = capsys.readouterr()
    lines = out.splitlines()
    assert lines[1].startswith("resnet8, 4 images of 3x8x8, 4 bits, learned scales; kernels eager")
    assert max(map(len, lines[1:])) <= 80
    for name in MEMORY_MODES:
        assert sum(re.match(rf"{re.escape(name)} +[\d.]", line) is not None for line in lines) == 3
    assert lines[-5:] == [
        f"written to {Path('runs/memory') / name}"
        for name in ("memory.json", "memory.md", "modes.png", "depth.png", "budget.png")
    ]
    rows = json.loads(Path("runs/memory/memory.json").read_text(encoding="utf-8"))["rows"]
    assert [row["identical"] for row in rows.values()] == [None, True, None, True, True, True]

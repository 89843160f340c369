"""What is left in the folder."""

import json
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl

from qat.measure.memory.report import write_report
from qat.measure.memory.study import Study


def test_everything_is_written_and_nothing_old_stays(study: Study, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    out = tmp_path / "new" / "folder"
    files = write_report(study, True, out)
    assert [file.name for file in files] == ["memory.json", "modes.png", "depth.png", "budget.png"]
    assert sorted(out.iterdir()) == sorted(files)
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files[1:])
    assert dict(mpl.rcParams) == before
    found = json.loads(files[0].read_text(encoding="utf-8"))
    assert (found["schema"], found["compiled"]) == (1, True)
    assert found["case"]["model"] == "resnet20"
    row = found["rows"]["packed"]
    assert (row["saved"], row["peak"], row["held"]) == (300_000_000, 320_000_000, 310_000_000)
    assert row["steps"] == {"seconds": [2.0, 2.0, 2.0], "identical": True}
    assert found["depth"]["curves"]["float"]["slope"] == 0.25
    assert found["budget"]["largest"]["float"] == 100
    assert "machine" in found["versions"]

    assert [file.name for file in write_report(replace(study, depth=None, budget=None), False, out)] == [
        "memory.json",
        "modes.png",
    ]
    assert sorted(path.name for path in out.iterdir()) == ["memory.json", "modes.png"]

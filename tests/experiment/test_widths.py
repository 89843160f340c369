"""Comparisons of several widths on tiny images: what is kept, renamed and set aside."""

import json
from pathlib import Path

import pytest

from qat.experiment import SETUPS, Settings, compare, plan
from qat.experiment.compare import is_finished
from qat.layers import Quantization


def settings(images: Path, bits: int = 4, **changes: object) -> Settings:
    quantization = Quantization(weight_bits=bits, activation_bits=bits)
    same = {"data": "folder", "data_root": str(images), "epochs": 1, "batch_size": 8}
    return Settings(**same, quantization=quantization, **changes)


def stamps(out: Path) -> dict[str, int]:
    """When each finished run's result was written, by the name of its folder."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/result.json")}


def test_runs_of_one_width_are_taken_over_and_back(images: Path, tmp_path: Path) -> None:
    setups = ["ste", "float"]
    compare(settings(images), plan(setups, [0], tmp_path))
    before = stamps(tmp_path)
    compare(settings(images, 2), plan(setups, [0], tmp_path, [2, 4]))
    after = stamps(tmp_path)
    assert after.keys() == {"ste-w4a4-seed0", "ste-w2a2-seed0", "float-seed0"}
    assert after["ste-w4a4-seed0"] == before["ste-seed0"]
    assert after["float-seed0"] == before["float-seed0"]
    # And back: the other width is set aside where something is trained.
    compare(settings(images), plan([*setups, "zero"], [0], tmp_path))
    back = stamps(tmp_path)
    assert back.keys() == {"ste-seed0", "float-seed0", "zero-seed0"}
    assert {name: back[name] for name in before} == before
    assert [path.name for path in (tmp_path / "earlier" / "1").iterdir()] == ["ste-w2a2-seed0"]


def test_widths_that_are_finished_are_not_repeated_and_stay(images: Path, tmp_path: Path) -> None:
    compare(settings(images, 8), plan(["ste"], [0], tmp_path, [8, 2]))
    before = stamps(tmp_path)
    compare(settings(images, 8), plan(["ste"], [0], tmp_path, [8, 1]))
    after = stamps(tmp_path)
    assert after.keys() == before.keys() | {"ste-w1a1-seed0"}
    assert {name: after[name] for name in before} == before
    compare(settings(images, 8, loss="cross_entropy"), plan(["float"], [0], tmp_path, [8, 1]))
    assert stamps(tmp_path).keys() == {"float-seed0"}


def test_a_folder_of_another_width_is_not_taken_for_this_one(images: Path, tmp_path: Path) -> None:
    (run,) = plan(["ste"], [0], tmp_path)
    compare(settings(images, 3), [run])
    for other in plan(["ste"], [0], tmp_path, [8, 2]):
        assert not is_finished(other, settings(images, 8))
    compare(settings(images, 8), plan(["ste"], [0], tmp_path, [8, 2]))
    assert stamps(tmp_path).keys() == {"ste-w8a8-seed0", "ste-w2a2-seed0"}
    assert (tmp_path / "earlier" / "1" / "ste-seed0" / "result.json").is_file()


def test_checkpointed_is_compared_with_plain_of_the_same_width(images: Path, tmp_path: Path) -> None:
    compare(settings(images, 8), plan(["ste", "checkpointed"], [0], tmp_path, [8, 2]))
    digests = set()
    for bits in (8, 2):
        plain, other = (
            json.loads((tmp_path / f"{name}-w{bits}a{bits}-seed0" / "result.json").read_text())
            for name in ("ste", "checkpointed")
        )
        assert other["difference"] == {"losses": 0, "parameters": 0, "buffers": 0}
        assert other["digests"] == plain["digests"]
        digests.add(json.dumps(plain["digests"]))
    assert len(digests) == 2


@pytest.mark.parametrize("setup", SETUPS)
def test_each_setup_runs_and_says_what_its_layers_cost(images: Path, tmp_path: Path, setup: str) -> None:
    compare(settings(images, 2), plan([setup], [0], tmp_path))
    result = json.loads((tmp_path / f"{setup}-seed0" / "result.json").read_text())
    if setup == "float":
        assert "summary" not in result
        return
    rows = {row["name"]: row for row in result["summary"]["rows"]}
    assert (rows["blocks.1.conv"]["weight_bits"], rows["blocks.1.conv"]["input_bits"]) == (2, 2)
    assert rows["blocks.1.conv"]["bit_operations"] == 4 * rows["blocks.1.conv"]["macs"]
    assert result["summary"]["bit_operations"] == sum(row["bit_operations"] for row in rows.values())
    assert result["summary"]["float_bytes"] == sum(row["float_bytes"] for row in rows.values())

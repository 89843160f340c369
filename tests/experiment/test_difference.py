"""The largest difference of two runs: exact zero, or said."""

import json
import math
from pathlib import Path

import pytest
import torch

from qat.experiment.difference import difference

STATE = {
    "model.w": torch.tensor([1.0, -2.0]),
    "model.n": torch.tensor(3),
    "model.big": torch.tensor([math.inf, math.nan]),
}


def folder(path: Path, losses: list[float], **changes: torch.Tensor) -> Path:
    path.mkdir()
    (path / "step_losses.json").write_text(json.dumps(losses))
    state = STATE | {f"model.{k}": v for k, v in changes.items()}
    of_a_run = {"epoch": 0, "global_step": 1, "hyper_parameters": {}, "qat_version": "1"}
    torch.save({"state_dict": state, **of_a_run}, path / "final.ckpt")
    return path


@pytest.mark.parametrize(
    ("losses", "changes", "expected"),
    [
        ([0.1, 0.2], {}, (0, 0, 0)),
        ([0.1, 0.25], {}, (0.25 - 0.2, 0, 0)),
        ([0.1], {}, (math.inf, 0, 0)),
        ([0.1, math.nan], {}, (math.nan, 0, 0)),
        ([0.1, 0.2], {"big": torch.tensor([math.inf, math.nan])}, (0, 0, 0)),
        ([0.1, 0.2], {"big": torch.tensor([math.inf, 1.0])}, (0, 0, math.nan)),
        ([0.1, 0.2], {"w": torch.tensor([1.0, -2.5])}, (0, 0.5, 0)),
        ([0.1, 0.2], {"w": torch.tensor([1.0, math.nan])}, (0, math.nan, 0)),
        ([0.1, 0.2], {"n": torch.tensor(4)}, (0, 0, 1)),
        ([0.1, 0.2], {"more": torch.tensor(4)}, (0, 0, math.inf)),
    ],
)
def test_largest_difference(tmp_path: Path, losses: list[float], changes: dict, expected: tuple) -> None:
    got = difference(folder(tmp_path / "a", [0.1, 0.2]), folder(tmp_path / "b", losses, **changes), {"w"})
    assert list(got) == ["losses", "parameters", "buffers"]
    assert tuple(got.values()) == pytest.approx(expected, abs=0, nan_ok=True)

"""Settings and runs are checked before anything starts."""

from pathlib import Path

import pytest

from qat.comparison import Settings, plan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "mnist5"}, "unknown data 'mnist5'; nearest: mnist"),
        ({"model": "smallcnn"}, "unknown model 'smallcnn'; nearest: small_cnn"),
        ({"loss": "hubr"}, "unknown loss 'hubr'; nearest: huber"),
        ({"epochs": 0}, "epochs must be at least 1; got 0"),
        ({"batch_size": -1}, "batch_size must be at least 1; got -1"),
    ],
)
def test_bad_settings(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**changes)


@pytest.mark.parametrize(
    ("setups", "seeds", "message"),
    [
        (["stee"], [0], "unknown setup 'stee'; nearest: ste"),
        ([], [0], "setups must name at least one"),
        (["ste"], [], "seeds must name at least one"),
        (["ste", "ste"], [0], "setups must differ; got 'ste' twice"),
        (["ste"], [1, 1], "seeds must differ; got 1 twice"),
        (["ste"], [-1], r"seeds must be 0 to 2\^32 - 1; got -1"),
    ],
)
def test_bad_plans(setups: list[str], seeds: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(setups, seeds, Path("out"))


def test_seed_by_seed() -> None:
    runs = plan(["ste", "float"], [0, 1], Path("out"))
    assert [run.folder for run in runs] == [
        Path("out") / name for name in ("ste-seed0", "float-seed0", "ste-seed1", "float-seed1")
    ]

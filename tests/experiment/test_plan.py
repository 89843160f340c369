"""Settings and runs are checked before anything starts."""

from pathlib import Path

import pytest

from qat.experiment import Run, Settings, plan
from qat.layers import Quantization


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
        (["nearest"], [0], "unknown setup 'nearest'"),
        (["stochastik"], [0], "unknown setup 'stochastik'; nearest: stochastic"),
        (["ste"], [-1], r"seeds must be 0 to 2\^32 - 1; got -1"),
    ],
)
def test_bad_plans(setups: list[str], seeds: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(setups, seeds, Path("out"))


def test_a_width_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="bits must differ; got 4 twice"):
        plan(["ste"], [0], Path("out"), [4, 2, 4])


def test_each_setup_at_each_width_and_float_once() -> None:
    runs = plan(["ste", "float"], [0, 1], Path("out"), [8, 1])
    names = ["ste-w8a8-seed0", "float-seed0", "ste-w1a1-seed0"]
    names += ["ste-w8a8-seed1", "float-seed1", "ste-w1a1-seed1"]
    assert [run.folder for run in runs] == [Path("out") / name for name in names]
    assert [str(run) for run in runs[:3]] == ["ste, 8 bits, seed 0", "float, seed 0", "ste, 1 bit, seed 0"]
    assert [Run.of(run.folder) for run in runs] == runs


def test_one_width_is_named_nowhere() -> None:
    (run,) = plan(["ste"], [7], Path("out"), [2])
    assert run.folder == Path("out") / "ste-seed7"
    assert Run.of(run.folder) == run


@pytest.mark.parametrize("name", ["stee-seed0", "ste-seedx", "ste-w4-seed0", "ste-w4a3-seed0", "ste"])
def test_other_folders_are_no_runs(name: str) -> None:
    assert Run.of(Path("out") / name) is None


def test_the_width_of_a_run_is_part_of_what_it_is() -> None:
    settings = Settings(quantization=Quantization(weight_bits=3, activation_bits=2))

    def bits(run: Run) -> tuple[int, int]:
        quantization = run.identity(settings)["settings"]["quantization"]
        return quantization["weight_bits"], quantization["activation_bits"]

    assert bits(Run("ste", 0, Path("out"))) == (3, 2)
    assert bits(Run("ste", 0, Path("out"), 8)) == (8, 8)
    assert bits(Run("float", 0, Path("out"))) == (32, 32)


def test_seed_by_seed() -> None:
    runs = plan(["ste", "float"], [0, 1], Path("out"))
    assert [run.folder for run in runs] == [
        Path("out") / name for name in ("ste-seed0", "float-seed0", "ste-seed1", "float-seed1")
    ]

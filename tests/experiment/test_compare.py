"""Whole comparisons on tiny images: results, resuming, equality of checkpointed and plain."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import torch

from qat.experiment import SETUPS, USUAL, Settings, compare, plan, prepare
from qat.experiment.compare import is_finished
from qat.layers import Quantization
from qat.memory import saved_bytes

RESULT_KEYS = {
    *("schema", "setup", "settings", "seed", "versions", "epochs", "test", "saved_bytes"),
    *("gradient_norm", "displacement", "digests"),
}


def settings(images: Path, **changes: object) -> Settings:
    return Settings(data="folder", data_root=str(images), epochs=2, batch_size=8, **changes)


def read(out: Path, run: str) -> dict:
    return json.loads((out / run / "result.json").read_text())


@pytest.fixture(scope="module")
def finished(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    compare(settings(images), plan([*USUAL, "packed", "packed_checkpointed"], [0], out))
    return out


def test_every_run_leaves_its_result(finished: Path) -> None:
    for setup in USUAL:
        result = read(finished, f"{setup}-seed0")
        assert result.keys() - {"difference"} == RESULT_KEYS | (
            {"summary", "health"} if setup != "float" else set()
        )
        assert (result["schema"], result["setup"], result["seed"]) == (1, setup, 0)
        assert [epoch["epoch"] for epoch in result["epochs"]] == [0, 1]
        assert 0 <= result["test"]["accuracy"] <= 1
        assert result["saved_bytes"] > 0


@pytest.mark.parametrize("setup", ["checkpointed", "packed", "packed_checkpointed"])
def test_what_saves_memory_equals_plain_and_saves_it(finished: Path, setup: str) -> None:
    plain, saving = read(finished, "ste-seed0"), read(finished, f"{setup}-seed0")
    assert saving["difference"] == {"losses": 0, "parameters": 0, "buffers": 0}
    assert "difference" not in plain
    assert saving["digests"] == plain["digests"]
    assert saving["saved_bytes"] < plain["saved_bytes"]
    assert saving["gradient_norm"] == plain["gradient_norm"]
    for key in ("train_loss", "val_loss", "val_accuracy"):
        assert [e[key] for e in saving["epochs"]] == [e[key] for e in plain["epochs"]]


def test_packed_and_checkpointed_saves_more_than_either(finished: Path) -> None:
    kept = {
        name: read(finished, f"{name}-seed0")["saved_bytes"]
        for name in SETUPS
        if name in {"checkpointed", "packed", "packed_checkpointed"}
    }
    assert min(kept, key=kept.__getitem__) == "packed_checkpointed"


def test_under_the_true_gradient_the_last_bias_alone_learns(finished: Path) -> None:
    zero = read(finished, "zero-seed0")
    assert {name for name, norms in zero["gradient_norm"].items() if any(norms)} == {"fc.bias"}
    assert {name for name, moved in zero["displacement"].items() if moved} == {"fc.bias"}
    assert all(all(norms) for norms in read(finished, "ste-seed0")["gradient_norm"].values())


def test_setups_start_from_equal_weights_and_see_equal_batches(images: Path, tmp_path: Path) -> None:
    start = []
    for setup in SETUPS.values():
        torch.manual_seed(3)
        start.append(dict(settings(images).classifier(setup, 3).model.named_parameters()))
    for other in start[1:]:
        assert start[0].keys() <= other.keys()  # learned scales come on top
        assert all(torch.equal(p, other[name]) for name, p in start[0].items())


def test_a_finished_run_is_not_repeated(finished: Path, images: Path) -> None:
    paths = sorted(finished.glob("*/result.json"))
    before = [path.stat().st_mtime_ns for path in paths]
    compare(settings(images), plan(USUAL, [0], finished))
    assert [path.stat().st_mtime_ns for path in paths] == before


def test_other_settings_seeds_and_versions_are_other_runs(
    finished: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = plan(["ste"], [0], finished)
    assert is_finished(run, settings(images))
    assert not is_finished(run, settings(images, quantization=Quantization(weight_bits=2)))
    assert not is_finished(run, settings(images, loss="cross_entropy"))
    assert not is_finished(plan(["ste"], [1], finished)[0], settings(images))
    monkeypatch.setattr(import_module("qat.experiment.plan"), "versions", lambda: {"torch": "0"})
    assert not is_finished(run, settings(images))


@pytest.mark.parametrize("name", ["final.ckpt", "step_losses.json"])
def test_a_run_without_all_its_files_is_not_finished(finished: Path, images: Path, name: str) -> None:
    (run,) = plan(["float"], [0], finished)
    (run.folder / name).rename(run.folder / "away")
    assert not is_finished(run, settings(images))
    (run.folder / "away").rename(run.folder / name)
    assert is_finished(run, settings(images))


def test_a_result_that_is_half_right_is_not_finished(finished: Path, images: Path) -> None:
    (run,) = plan(["float"], [0], finished)
    path = run.folder / "result.json"
    text = path.read_text()
    path.write_text(text.replace('"seconds": ', '"seconds": "x", "was": '))
    assert not is_finished(run, settings(images))
    path.write_text(text)


def test_a_batch_larger_than_the_data_is_the_data(images: Path, tmp_path: Path) -> None:
    few = Settings(data="folder", data_root=str(images), epochs=1, batch_size=10**9)
    compare(few, plan(["float"], [0], tmp_path))
    whole = read(tmp_path, "float-seed0")["saved_bytes"]
    assert whole < 36 * 10**6


def test_an_interrupted_comparison_goes_on_where_it_stopped(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = plan(["float", "ste"], [0], tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(import_module("qat.experiment.compare"), "saved_bytes", stop_at(2))
        with pytest.raises(KeyboardInterrupt):
            compare(settings(images), runs)
    assert [is_finished(run, settings(images)) for run in runs] == [True, False]
    stamp = (runs[0].folder / "result.json").stat().st_mtime_ns
    compare(settings(images), runs)
    assert [is_finished(run, settings(images)) for run in runs] == [True, True]
    assert (runs[0].folder / "result.json").stat().st_mtime_ns == stamp


def stop_at(number: int):
    """`saved_bytes` until its call of that number, which is a Ctrl-C."""
    calls = 0

    def stopping(*args):
        nonlocal calls
        calls += 1
        if calls == number:
            raise KeyboardInterrupt
        return saved_bytes(*args)

    return stopping


def test_runs_of_other_settings_are_set_aside_not_lost(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(settings(images), plan(["float"], [0], tmp_path))
    compare(settings(images, loss="cross_entropy"), plan(["zero"], [0], tmp_path))
    assert [p.parent.name for p in tmp_path.glob("*/result.json")] == ["zero-seed0"]
    assert read(tmp_path / "earlier" / "1", "float-seed0")["settings"]["loss"] == "huber"
    assert "1 runs of other settings or versions, or broken ones, were moved to" in capsys.readouterr().out


def test_bad_options_are_refused_before_anything_is_written(images: Path, tmp_path: Path) -> None:
    bad = settings(images, learning_rate=-1.0)
    with pytest.raises(ValueError, match="learning_rate must be > 0"):
        prepare(bad, plan(["float"], [0], tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_on_real_digits_straight_through_beats_the_true_gradient_by_far(tmp_path: Path) -> None:
    compare(Settings(epochs=2, batch_size=128), plan(["zero", "ste"], [0], tmp_path))
    zero, ste = (read(tmp_path, f"{name}-seed0")["test"]["accuracy"] for name in ("zero", "ste"))
    assert zero < 0.4
    assert ste > 0.9

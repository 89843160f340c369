"""Whole comparisons on tiny images: results, resuming, equality of checkpointed and plain."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from qat.experiment import RunsFailedError, compare, plan, read_comparison
from qat.experiment.comparison import LIBRARY, MAIN
from qat.experiment.options import build
from qat.experiment.plan import BOTH_BITS
from qat.memory import saved_bytes
from qat.training.result import versions

USUAL = ("zero", "ste", "float", "checkpointed")
SAVING = ("checkpointed", "packed", "packed_checkpointed")
ALL = list(read_comparison(MAIN).setups | read_comparison(LIBRARY).setups)
RESULT_KEYS = {
    *("schema", "setup", "sweep", "settings", "seed", "versions", "epochs", "test", "saved_bytes"),
    *("gradient_norm", "displacement", "digests", "class_names"),
}


def results(out: Path) -> dict[str, dict[str, Any]]:
    """The results in a folder, by setup and swept values."""
    found = [json.loads(path.read_text()) for path in out.glob("*/result.json")]
    return {", ".join([each["setup"], *map(str, each["sweep"].values())]): each for each in found}


def stamps(out: Path) -> dict[str, int]:
    """When each result was written, by the name of its folder."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/result.json")}


@pytest.fixture(scope="module")
def main_job(images: Path):
    data = {"name": "folder", "data_root": str(images), "batch_size": 8}
    comparison = read_comparison(MAIN).pick([*USUAL, "packed", "packed_checkpointed"])
    for name, value in data.items():
        comparison = comparison.with_values([f"data.{name}"], [value])
    return replace(comparison.with_values(["trainer.max_epochs"], [2]), seeds=[0])


@pytest.fixture(scope="module")
def finished(main_job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    compare(main_job, out)
    return out


def test_every_run_leaves_its_result(finished: Path) -> None:
    found = results(finished)
    assert found.keys() == {*USUAL, *SAVING}
    for setup, result in found.items():
        expected = RESULT_KEYS | ({"summary", "health"} if setup != "float" else set())
        assert result.keys() - {"difference"} == expected
        assert (result["schema"], result["setup"], result["seed"], result["sweep"]) == (2, setup, 0, {})
        assert [epoch["epoch"] for epoch in result["epochs"]] == [0, 1]
        assert 0 <= result["test"]["accuracy"] <= 1
        assert result["saved_bytes"] > 0
        assert result["versions"] == versions()


def test_the_runs_are_listed_in_order(finished: Path) -> None:
    content = yaml.safe_load((finished / "comparison.yaml").read_text())
    assert [name.partition("-seed")[0] for name in content["runs"]] == [*USUAL, *SAVING[1:]]
    assert {path.parent.name for path in finished.glob("*/result.json")} == set(content["runs"])


@pytest.mark.parametrize("setup", SAVING)
def test_what_saves_memory_equals_plain_and_saves_it(finished: Path, setup: str) -> None:
    plain, saving = results(finished)["ste"], results(finished)[setup]
    assert saving["difference"] == {"to": "ste", "losses": 0, "parameters": 0, "buffers": 0}
    assert "difference" not in plain
    assert saving["digests"] == plain["digests"]
    assert saving["saved_bytes"] < plain["saved_bytes"]
    assert saving["gradient_norm"] == plain["gradient_norm"]
    for key in ("train_loss", "val_loss", "val_accuracy"):
        assert [e[key] for e in saving["epochs"]] == [e[key] for e in plain["epochs"]]


def test_packed_and_checkpointed_saves_more_than_either(finished: Path) -> None:
    kept = {name: results(finished)[name]["saved_bytes"] for name in SAVING}
    assert min(kept, key=kept.__getitem__) == "packed_checkpointed"


def test_under_the_true_gradient_the_last_bias_alone_learns(finished: Path) -> None:
    zero = results(finished)["zero"]
    assert {name for name, norms in zero["gradient_norm"].items() if any(norms)} == {"fc.bias"}
    assert {name for name, moved in zero["displacement"].items() if moved} == {"fc.bias"}
    assert all(all(norms) for norms in results(finished)["ste"]["gradient_norm"].values())


def test_setups_start_from_equal_weights(main_job) -> None:
    start = []
    for run in plan(main_job.pick(ALL), versions()):
        torch.manual_seed(3)
        start.append(dict(build(run.options, 3)[0].model.named_parameters()))
    assert len(start) == len(ALL)
    for other in start[1:]:
        assert start[0].keys() <= other.keys()  # learned scales come on top
        assert all(torch.equal(p, other[name]) for name, p in start[0].items())


def test_finished_runs_are_kept_whatever_is_added(tiny, tmp_path: Path) -> None:
    compare(tiny("ste"), tmp_path)
    first = stamps(tmp_path)
    compare(tiny("float", "ste", seeds=[1, 0]), tmp_path)
    assert len(stamps(tmp_path)) == 4
    assert first.items() < stamps(tmp_path).items()
    compare(tiny("ste", trainer={"max_epochs": 2}), tmp_path)  # another comparison in the same folder
    assert len(stamps(tmp_path)) == 5
    assert first.items() < stamps(tmp_path).items()
    listed = yaml.safe_load((tmp_path / "comparison.yaml").read_text())["runs"]
    assert len(listed) == 1


def test_a_run_that_becomes_part_of_a_sweep_is_kept_and_named_anew(tiny, tmp_path: Path) -> None:
    key = ", ".join(BOTH_BITS)
    compare(tiny("ste", "float"), tmp_path)
    before = results(tmp_path)["ste"]
    compare(
        tiny("ste", "checkpointed", "float", sweep={key: [4, 2]}, equal=[["checkpointed", "ste"]]), tmp_path
    )
    found = results(tmp_path)
    assert found.keys() == {"ste, 4", "ste, 2", "checkpointed, 4", "checkpointed, 2", "float"}
    assert found["ste, 4"] == before | {"sweep": {key: 4}}  # the seconds too: it was not trained again
    for bits in (4, 2):
        one, other = found[f"checkpointed, {bits}"], found[f"ste, {bits}"]
        assert one["difference"] == {"to": "ste", "losses": 0, "parameters": 0, "buffers": 0}
        assert one["digests"] == other["digests"]
    assert found["ste, 4"]["digests"] != found["ste, 2"]["digests"]


def test_a_difference_is_that_of_the_pair_as_it_is_now(tiny, tmp_path: Path) -> None:
    pair = {"equal": [["checkpointed", "ste"]]}
    compare(tiny("ste", "checkpointed", **pair), tmp_path)
    changed = {"ste": {"model.quantization.rounding": "ste", "model.learning_rate": 0.02}}
    compare(tiny("checkpointed", setups=changed, **pair), tmp_path)
    (checkpointed,) = (r for r in results(tmp_path).values() if r["setup"] == "checkpointed")
    assert checkpointed["difference"]["parameters"] > 0
    compare(tiny("checkpointed"), tmp_path)
    (checkpointed,) = (r for r in results(tmp_path).values() if r["setup"] == "checkpointed")
    assert "difference" not in checkpointed


@pytest.mark.parametrize("setup", ALL)
def test_each_setup_runs_and_says_what_its_layers_cost(tiny, tmp_path: Path, setup: str) -> None:
    compare(tiny("float").pick([setup]).with_values(BOTH_BITS, [2]), tmp_path)
    (result,) = results(tmp_path).values()
    if setup == "float":
        assert "summary" not in result
        return
    rows = {row["name"]: row for row in result["summary"]["rows"]}
    assert (rows["blocks.1.conv"]["weight_bits"], rows["blocks.1.conv"]["input_bits"]) == (2, 2)
    assert rows["blocks.1.conv"]["bit_operations"] == 4 * rows["blocks.1.conv"]["macs"]
    assert result["summary"]["bit_operations"] == sum(row["bit_operations"] for row in rows.values())
    assert result["summary"]["float_bytes"] == sum(row["float_bytes"] for row in rows.values())


def test_any_option_of_training_may_differ(
    tiny, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(tiny("float"), tmp_path)
    (ckpt,) = tmp_path.glob("float-*/final.ckpt")
    setups = {
        "started": {"model.start": str(ckpt), "model.quantization.rounding": "qat.gradients.round_ste"},
        "taught": {"model.teacher": str(ckpt), "model.optimizer": "sgd"},
        "phases": {"model.float_epochs": 1, "trainer.max_epochs": 3, "model.freeze_epoch": 2},
        "own": {"model": {"name": "qat.models.LeNet", "quantization.weight_scale": "learned"}},
    }
    compare(tiny(setups=setups), tmp_path)
    assert results(tmp_path).keys() == {"float", *setups}
    assert len(results(tmp_path)["phases"]["epochs"]) == 3
    assert "loaded all" not in capsys.readouterr().out  # it would tear the bars


@pytest.mark.parametrize("name", ["final.ckpt", "step_losses.json", "result.json"])
def test_a_run_without_all_its_files_is_not_finished(finished: Path, main_job, name: str) -> None:
    run = next(run for run in plan(main_job, versions()) if run.setup == "float")
    path = finished / run.folder / name
    assert run.is_finished(finished)
    path.rename(path.with_suffix(".away"))
    assert not run.is_finished(finished)
    path.with_suffix(".away").rename(path)
    assert run.is_finished(finished)


def test_a_truncated_ckpt_is_not_finished(finished: Path, main_job) -> None:
    run = next(run for run in plan(main_job, versions()) if run.setup == "float")
    path = finished / run.folder / "final.ckpt"
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    assert not run.is_finished(finished)
    path.write_bytes(content)
    assert run.is_finished(finished)


def test_a_result_that_is_half_right_is_not_finished(finished: Path, main_job) -> None:
    run = next(run for run in plan(main_job, versions()) if run.setup == "float")
    path = finished / run.folder / "result.json"
    text = path.read_text()
    path.write_text(text.replace('"seconds": ', '"seconds": "x", "was": '))
    assert not run.is_finished(finished)
    path.write_text(text)
    assert run.is_finished(finished)


def test_a_batch_larger_than_the_data_is_the_data(tiny, tmp_path: Path) -> None:
    compare(tiny("float").with_values(["data.batch_size"], [10**9]), tmp_path)
    assert results(tmp_path)["float"]["saved_bytes"] < 36 * 10**6


def test_an_interrupted_comparison_goes_on_where_it_stopped(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison = tiny("float", "ste")
    with monkeypatch.context() as patch:
        patch.setattr(import_module("qat.experiment.run"), "saved_bytes", stop_at(2))
        with pytest.raises(KeyboardInterrupt, match="1 of 2 runs are finished"):
            compare(comparison, tmp_path)
    kept = stamps(tmp_path)
    assert len(kept) == 1
    compare(comparison, tmp_path)
    assert len(stamps(tmp_path)) == 2
    assert kept.items() < stamps(tmp_path).items()


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


def test_a_run_that_fails_leaves_the_others_going(tiny, tmp_path: Path) -> None:
    comparison = tiny(
        "float",
        setups={
            "bad": {"model.learning_rate": 1e30},
            "worse": {"model.learning_rate": 1e31},
            "last": {"model.loss": "cross_entropy"},
        },
    )
    with pytest.raises(RunsFailedError) as caught:
        compare(comparison, tmp_path)
    bad, worse = caught.value.args
    assert bad.startswith("bad, seed 0: ")
    assert worse.startswith("worse, seed 0: ")
    assert results(tmp_path).keys() == {"float", "last"}


def test_results_of_another_schema_are_named_and_ignored(
    tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ste-seed0").mkdir()
    (tmp_path / "ste-seed0" / "result.json").write_text('{"schema": 1, "versions": {"qat": "0.1.0"}}')
    compare(tiny("float"), tmp_path)
    assert (
        f"1 results in {tmp_path} are ignored: qat 0.1.0 wrote them in another form"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("setups", "more", "message"),
    [
        ({"a": {"model.learning_rate": -1}}, {}, "a: learning_rate must be > 0"),
        ({"a": {}}, {"sweep": {"model.learning_rate": [0.1, -1]}}, r"a, learning_rate -1\.0: learning_rat"),
        ({"a": {}}, {"model": {"learning_rate": -1}}, "^learning_rate must be > 0"),
        ({"a": {"model.quantization.weight_bits": 9}}, {}, "a: weight_bits must be one of"),
        ({"a": {"trainer.limit_train_batches": 1e-6}}, {}, "a: trainer.limit_train_batches must be at"),
        ({"a": {"trainer.gradient_clip_val": -1}}, {}, "a: trainer.gradient_clip_val must be >= 0"),
        ({"a": {"data.batch_size": 10**20}}, {}, "a: batch_size must be 1 to 2"),
        ({"a": {"model.quantization.rounding": "no.such"}}, {}, "a: rounding 'no.such': there is no"),
        ({"a": {"model.quantization.rounding": "os.system"}}, {}, "a: rounding must be user-defined, not"),
        ({"a": {"model.name": "resnet9"}}, {}, "a: unknown model 'resnet9'; nearest: resnet8"),
        ({"a": {"model.start": "none.ckpt"}}, {}, "a: start must be a .ckpt file"),
        ({"a": {"trainer.max_epochs": 0}}, {}, r"a: trainer\.max_epochs must be at least 1, got 0"),
        ({"a": {"model.float_epochs": 1}}, {}, r"a: model\.float_epochs must be below trainer\.max_ep"),
        ({"a": {"trainer.limit_train_batches": 0}}, {}, r"a: trainer\.limit_train_batches must be above 0"),
        ({"a": {"trainer.accelerator": "tpu9"}}, {}, "a: trainer: "),
        ({"a": {"data.data_root": "no/such"}}, {}, "no/such"),
        ({"a": {}, "b": {}}, {}, "setups must differ, but a and b are the same run"),
    ],
)  # fmt: skip
def test_bad_options_are_refused_before_anything_is_written(
    tiny, tmp_path: Path, setups: dict, more: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        compare(tiny(setups=setups, **more), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_on_real_digits_straight_through_beats_the_true_gradient_by_far(tmp_path: Path) -> None:
    comparison = read_comparison(MAIN).pick(["zero", "ste"]).with_values(["trainer.max_epochs"], [2])
    comparison = comparison.with_values(["data.batch_size"], [128])
    compare(replace(comparison, seeds=[0]), tmp_path)
    zero, ste = (results(tmp_path)[name]["test"]["accuracy"] for name in ("zero", "ste"))
    assert zero < 0.4
    assert ste > 0.9

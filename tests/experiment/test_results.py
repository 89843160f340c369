"""Results are read back in the report's order, and what is not a result is refused by name."""

import json
import math
import re

import pytest
import yaml

from qat.experiment.results import load_results

BITS = "model.quantization.weight_bits, model.quantization.activation_bits"
SUMMARY = {"rows": [], "left_float": {"fc": "why"}, "not_run": [], "weight_bytes": 4, "float_bytes": 32}


@pytest.fixture
def make():
    """The content of a result with changes."""

    def content(setup="ste", seed=0, **changes):
        return {
            "schema": 2,
            "setup": setup,
            "sweep": {},
            "settings": {"model": {"name": "small_cnn"}},
            "seed": seed,
            "versions": {"qat": "0.1.0"},
            "epochs": [{"epoch": 0, "train_loss": 0.5, "val_loss": 0.4, "val_accuracy": 0.9, "seconds": 2}],
            "test": {"accuracy": 0.9, "loss": 0.4},
            "saved_bytes": 1000,
            "gradient_norm": {"fc.bias": [0.5, 0.25]},
            "displacement": {"fc.bias": 1.5},
            "digests": {"fc.bias": "abc"},
        } | changes

    return content


@pytest.fixture
def write(tmp_path):
    """Write results, each into its own folder, and `comparison.yaml`, by default with these runs alone."""

    def files(*contents, comparison=None):
        for n, content in enumerate(contents):
            folder = tmp_path / f"run{n}"
            folder.mkdir()
            (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
        setups = dict.fromkeys((content["setup"] for content in contents), "")
        runs = [f"run{n}" for n in range(len(contents))]
        text = comparison or {"setups": setups, "runs": runs, "sweep": {}, "equal": []}
        (tmp_path / "comparison.yaml").write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
        return tmp_path

    return files


def test_a_result_has_its_types(make, write):
    difference = {"to": "zero", "losses": 0, "parameters": 0.5, "buffers": None}
    health = {"fc": {"clipped": [None, 0.5]}}
    (run,) = load_results(write(make(summary=SUMMARY, difference=difference, health=health, more=1))).runs
    assert (run.setup, run.seed, run.test.accuracy, run.epochs[0].seconds) == ("ste", 0, 0.9, 2.0)
    assert run.gradient_norm == {"fc.bias": (0.5, 0.25)}
    assert (run.summary.weight_bytes, run.summary.left_float) == (4, {"fc": "why"})
    assert (run.difference.to, run.difference.parameters) == ("zero", 0.5)
    assert math.isnan(run.difference.buffers)
    assert math.isnan(run.health["fc"]["clipped"][0])


def test_null_and_nan_are_nan(make, write):
    epochs = [
        {"epoch": n, "train_loss": loss, "val_loss": 1, "val_accuracy": 0, "seconds": 1}
        for n, loss in enumerate([None, math.nan, 0.5])
    ]
    (run,) = load_results(write(make(epochs=epochs))).runs
    assert [math.isnan(epoch.train_loss) for epoch in run.epochs] == [True, True, False]


def test_the_comparison_gives_order_runs_meanings_and_pairs(make, write):
    contents = [
        *(make("b", seed, sweep={BITS: bits}) for seed in (1, 0) for bits in (2, 8)),
        make("a"),
        make("of another comparison"),
    ]
    comparison = {
        "setups": {"b": "first", "a": "", "c": "not run"},
        "sweep": {BITS: [8, 4, 2]},
        "seeds": [0, 1],
        "equal": [["a", "b"]],
        "runs": ["run4", "run1", "run0", "run2", "run3", "gone"],
    }
    results = load_results(write(*contents, comparison=comparison))
    assert [(run.setup, run.sweep.get(BITS), run.seed) for run in results.runs] == [
        *(("b", 8, 0), ("b", 8, 1), ("b", 2, 0), ("b", 2, 1)),
        ("a", None, 0),
    ]
    assert (results.listing.setups["b"], results.listing.equal) == ("first", [("a", "b")])


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=f"no comparison.yaml in {re.escape(str(tmp_path))}") as caught:
        load_results(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": 1}, "schema must be 2, got 1, written by qat 0.1.0; run the comparison again"),
        ({"schema": 1, "versions": {}}, "schema must be 2, got 1, written by qat of an unknown version"),
        ({"epochs": []}, "epochs must not be empty"),
        ({"seed": "0"}, "seed must be of type int, got '0'"),
        ({"seed": True}, "seed must be of type int, got True"),
        ({"test": {"accuracy": 0.5}}, "test.loss is missing"),
        ({"saved_bytes": "many"}, "saved_bytes must be a number, got 'many'"),
        ({"saved_bytes": True}, "saved_bytes must be a number, got True"),
        ({"gradient_norm": {"fc.bias": [1.0]}}, "gradient_norm.fc.bias must hold 2 values, got [1.0]"),
        ({"difference": {"losses": 0.0}}, "difference.to is missing"),
        ({"summary": {"rows": []}}, "summary.left_float is missing"),
        ({"summary": SUMMARY | {"rows": [3]}}, "summary.rows[0] must be of type dict, got 3"),
        ({"summary": SUMMARY | {"rows": [{"name": 3}]}}, "summary.rows[0].kind is missing"),
        ({"health": []}, "health must be of type dict, got []"),
        ({"health": {"fc": []}}, "health.fc must be of type dict, got []"),
        ({"health": {"fc": {"clipped": ["many"]}}}, "health.fc.clipped[0] must be a number, got 'many'"),
    ],
)
def test_a_wrong_result_is_refused_by_name(make, write, change, reason):
    out = write(make("zero"), make(**change))
    path = re.escape(str(out / "run1" / "result.json"))
    with pytest.raises(ValueError, match=f"^{path}: {re.escape(reason)}") as caught:
        load_results(out)
    assert "\n" not in str(caught.value)


def test_a_comparison_without_a_finished_run_is_refused(make, write):
    out = write(make())
    (out / "run0" / "result.json").unlink()
    with pytest.raises(ValueError, match=f"no results in {re.escape(str(out))}"):
        load_results(out)


@pytest.mark.parametrize("text", ["", '{"schema": 2', "\xff", "[1]", "null"])
def test_a_broken_file_is_refused_by_name(make, write, tmp_path, text):
    path = write(make()) / "run0" / "result.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: ") as caught:
        load_results(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["a: [", "setups: {a: b}", "- 1", "{setups: {}, runs: [1]}"])
def test_a_broken_comparison_is_refused_by_name(make, write, text):
    out = write(make())
    (out / "comparison.yaml").write_text(text)
    with pytest.raises(ValueError, match=f"^{re.escape(str(out / 'comparison.yaml'))}: ") as caught:
        load_results(out)
    assert "\n" not in str(caught.value)

"""Results are read back in the report's order, and what is not a result is refused by name."""

import json
import math
import re

import pytest

from qat.experiment.results import load_results


def test_order_is_by_setup_then_seed(tmp_path, result_of, write_results):
    given = [
        result_of(setup, seed)
        for setup in ("soft", "checkpointed", "ewgs", "float", "ste", "zero")
        for seed in (1, 0)
    ]
    loaded = load_results(write_results(tmp_path, given))
    assert [(run["setup"], run["seed"]) for run in loaded] == [
        (setup, seed) for setup in ("zero", "ste", "float", "checkpointed", "ewgs", "soft") for seed in (0, 1)
    ]


def test_null_and_nan_are_nan(tmp_path, result_of, write_results):
    result = result_of("ste")
    result["epochs"][0]["train_loss"] = None
    result["epochs"][1]["train_loss"] = math.nan
    result["gradient_norm"]["fc.bias"] = [0.5, None]
    (loaded,) = load_results(write_results(tmp_path, [result]))
    assert [math.isnan(epoch["train_loss"]) for epoch in loaded["epochs"][:3]] == [True, True, False]
    assert loaded["gradient_norm"]["fc.bias"][0] == 0.5
    assert math.isnan(loaded["gradient_norm"]["fc.bias"][1])


def test_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=f"no results in {re.escape(str(tmp_path))}") as caught:
        load_results(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": 2}, "schema must be 1, got 2"),
        ({"epochs": []}, "'epochs' is empty"),
        ({"seed": "0"}, "'seed' must be a int, got '0'"),
        ({"test": {"accuracy": 0.5}}, "no 'loss'"),
        ({"saved_bytes": "many"}, "expected a number, got 'many'"),
        ({"gradient_norm": {"fc.bias": [1.0]}}, "not enough values"),
        ({"difference": {"losses": 0.0}}, "no 'parameters'"),
    ],
)
def test_wrong_result_is_refused_by_name(tmp_path, result_of, write_results, change, reason):
    write_results(tmp_path, [result_of("zero")])
    path = tmp_path / "ste-seed0" / "result.json"
    write_results(tmp_path, [result_of("ste") | change | {"setup": "ste"}] if "seed" not in change else [])
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result_of("ste") | change))
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: .*{re.escape(reason)}"):
        load_results(tmp_path)


@pytest.mark.parametrize("text", ["", '{"schema": 1', "\xff", "[1]"])
def test_broken_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "ste-seed0" / "result.json"
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: "):
        load_results(tmp_path)


def test_the_same_run_twice_is_refused(tmp_path, result_of, write_results):
    write_results(tmp_path, [result_of("ste")])
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "result.json").write_text(json.dumps(result_of("ste")))
    with pytest.raises(ValueError, match="setup 'ste' with seed 0 is already in"):
        load_results(tmp_path)

"""Which runs a comparison means, and what makes two of them the same."""

import json
from pathlib import Path

import pytest

from qat.experiment import TrainingRun, parse_comparison, plan
from qat.experiment.plan import BOTH_BITS, listing

VERSIONS = {"torch": "1", "machine": "Linux, 2 threads"}
FLOAT = {f"model.quantization.{name}_bits": 32 for name in ("weight", "activation", "first_last", "input")}
TWO = {"ste": {}, "float": FLOAT}


def runs(setups: dict, versions: dict = VERSIONS, **content) -> list[TrainingRun]:
    return plan(parse_comparison({"setups": setups, **content}), versions)


def test_each_setup_at_each_value_and_float_once_seed_by_seed() -> None:
    joined = ", ".join(BOTH_BITS)
    found = runs(TWO, seeds=[0, 1], sweep={joined: [8, 1]})
    assert [str(run) for run in found] == [
        *("ste, 8 bits, seed 0", "float, seed 0", "ste, 1 bit, seed 0"),
        *("ste, 8 bits, seed 1", "float, seed 1", "ste, 1 bit, seed 1"),
    ]
    assert [run.sweep for run in found[:3]] == [{joined: 8}, {}, {joined: 1}]
    bits = [run.options["model"]["quantization"]["activation_bits"] for run in found[:3]]
    assert bits == [8, 32, 1]


def test_several_sweeps_are_crossed() -> None:
    found = runs({"a": {}}, sweep={"model.learning_rate": [0.1, 0.2], "model.optimizer": ["sgd", "adamw"]})
    assert [str(run) for run in found] == [
        "a, learning_rate 0.1, optimizer sgd, seed 0",
        "a, learning_rate 0.1, optimizer adamw, seed 0",
        "a, learning_rate 0.2, optimizer sgd, seed 0",
        "a, learning_rate 0.2, optimizer adamw, seed 0",
    ]


def test_a_setup_that_sets_one_of_joined_options_takes_the_other_from_the_sweep() -> None:
    (run,) = runs({"a": {BOTH_BITS[0]: 3}}, sweep={", ".join(BOTH_BITS): [2]})
    quantization = run.options["model"]["quantization"]
    assert (quantization["weight_bits"], quantization["activation_bits"]) == (3, 2)
    assert run.sweep == {", ".join(BOTH_BITS): 2}
    assert str(run) == "a, activation_bits 2, seed 0"


def test_a_pair_that_is_never_at_the_same_swept_values_is_refused() -> None:
    setups = {"a": {}, "b": {"model.learning_rate": 0.5}}
    with pytest.raises(
        ValueError, match=r"equal must hold setups that run at the same swept values.*got a and b"
    ):
        runs(setups, sweep={"model.learning_rate": [0.1]}, equal=[["a", "b"]])


def test_two_setups_that_are_the_same_run_are_refused() -> None:
    with pytest.raises(ValueError, match="setups must differ, but a and b are the same run"):
        runs({"a": {"model.loss": "huber"}, "b": {}})
    with pytest.raises(ValueError, match="but four and a are the same run"):
        runs({"a": {}, "four": {BOTH_BITS[0]: 4}}, sweep={BOTH_BITS[0]: [8, 4]})


def test_a_folder_is_named_by_what_decides_the_outcome(tmp_path: Path) -> None:
    (run,) = runs({"a": {}})
    assert run.folder[:-8] == "a-seed0-"
    assert int(run.folder[-8:], 16) >= 0
    same = [{}, {"data": {"data_root": str(tmp_path)}}, {"model": {"learning_rate": 0.01}}]
    assert {runs({"a": {}}, **content)[0].folder for content in same} == {run.folder}
    other = [
        {"seeds": [1]},
        {"versions": {"torch": "2"}},
        {"versions": VERSIONS | {"machine": "Linux, 1 threads"}},
        {"model": {"learning_rate": 0.02}},
        {"trainer": {"max_epochs": 6}},
        {"data": {"name": "folder", "data_root": str(tmp_path)}},
        {"data": {"name": "folder", "data_root": str(tmp_path / "a")}},
        {"model": {"teacher": str(tmp_path / "t.ckpt")}},
    ]
    digests = {runs({"a": {}}, **content)[0].folder[-8:] for content in other}
    assert len(digests - {run.folder[-8:]}) == len(other)


def test_another_file_of_the_same_name_is_another_teacher(tmp_path: Path) -> None:
    (run,) = runs({"a": {"model.teacher": str(tmp_path / "t.ckpt")}})
    (tmp_path / "t.ckpt").write_bytes(b"1")
    one = run.folder
    (tmp_path / "t.ckpt").write_bytes(b"2")
    assert run.folder != one


def test_a_finished_run_keeps_its_folder_when_setups_seeds_and_values_are_added() -> None:
    few = runs({"ste": {}}, sweep={BOTH_BITS[0]: [8]})
    many = runs(TWO, seeds=[3, 0], sweep={"model.loss": ["huber"], BOTH_BITS[0]: [2, 8]})
    assert {run.folder for run in few} < {run.folder for run in many}
    assert {run.folder for run in runs({"ste": {BOTH_BITS[0]: 8}})} == {run.folder for run in few}


def test_settings_are_plain_and_complete() -> None:
    (run,) = runs({"a": {"model.quantization.rounding": "qat.gradients.round_soft"}})
    assert json.loads(json.dumps(run.identity)) == run.identity
    assert run.identity["settings"].keys() == {"model", "data", "trainer"}
    assert run.identity["settings"]["model"]["quantization"]["rounding"] == "qat.gradients.round_soft"
    assert run.identity["settings"]["model"]["teacher"] is None
    assert "data_root" not in run.identity["settings"]["data"]
    assert not {"seed", "input_shape", "classes"} & run.identity["settings"]["model"].keys()


def test_the_listing_is_what_the_report_reads() -> None:
    setups = {"a": {"meaning": "one"}, "b": {"model.pack": True}}
    comparison = parse_comparison({"setups": setups, "sweep": {BOTH_BITS[0]: [2]}, "equal": [["b", "a"]]})
    planned = plan(comparison, VERSIONS)
    assert listing(comparison, planned) == {
        "schema": 2,
        "setups": {"a": "one", "b": ""},
        "sweep": {BOTH_BITS[0]: [2]},
        "seeds": [0],
        "equal": [["b", "a"]],
        "against": None,
        "runs": [run.folder for run in planned],
    }


def test_the_option_of_a_setup_wins_over_that_of_the_base() -> None:
    one, other = runs({"a": {"model.learning_rate": 0.5}, "b": {}}, model={"learning_rate": 0.25})
    assert [run.options["model"]["learning_rate"] for run in (one, other)] == [0.5, 0.25]

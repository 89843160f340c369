"""What the YAML of a comparison says, and one line for whatever is wrong in it."""

from pathlib import Path

import pytest

from qat.experiment import parse_comparison, plan, read_comparison
from qat.experiment.comparison import LIBRARY, MAIN

CONFIGS = Path(__file__).parents[2] / "configs"
BITS = ("model.quantization.weight_bits", "model.quantization.activation_bits")


def read(tmp_path: Path, text: str):
    path = tmp_path / "compare.yaml"
    path.write_text(text)
    return read_comparison(path)


def test_the_file_that_users_copy_is_the_main_job() -> None:
    assert (CONFIGS / "compare.yaml").read_text() == MAIN.read_text()


def test_the_main_job_is_four_setups_of_three_seeds() -> None:
    comparison = read_comparison(MAIN)
    assert list(comparison.setups) == ["zero", "ste", "float", "checkpointed"]
    assert comparison.seeds == [0, 1, 2]
    assert comparison.equal == [("checkpointed", "ste")]
    assert comparison.base["trainer.max_epochs"] == 6
    assert all(setup.meaning for setup in comparison.setups.values())
    assert len(plan(comparison, {})) == 12


def test_a_setup_may_merge_another(tmp_path: Path) -> None:
    text = "setups:\n  a: &a {model.loss: huber}\n  b: {<<: *a, model.name: lenet}"
    assert read(tmp_path, text).setups["b"].options == {"model.loss": "huber", "model.name": "lenet"}


def test_each_rounding_has_a_setup() -> None:
    from qat.gradients import ROUNDINGS

    setups = read_comparison(MAIN).setups | read_comparison(LIBRARY).setups
    for name in ROUNDINGS:
        assert setups[name].options == {"model.quantization.rounding": name}
    assert setups.keys() - ROUNDINGS.keys() == {
        "float",
        "learned",
        "checkpointed",
        "packed",
        "packed_checkpointed",
    }


def test_options_may_be_nested_or_dotted_and_numbers_like_1e_3_are_numbers(tmp_path: Path) -> None:
    comparison = read(
        tmp_path,
        """
        model: {learning_rate: 1e-3, quantization.layers: {fc: {weight_bits: 8}}}
        setups:
          one: {model.quantization: {weight_bits: 2}, meaning: two bits}
          other: {model: {optimizer: sgd, quantization.layers: {}}}
        sweep: {model.weight_decay: [0, 1e-4]}
        """,
    )
    assert comparison.base == {
        "model.learning_rate": 0.001,
        "model.quantization.layers": {"fc": {"weight_bits": 8}},
    }
    assert comparison.setups["one"].options == {"model.quantization.weight_bits": 2}
    assert comparison.setups["one"].meaning == "two bits"
    assert comparison.setups["other"].options == {"model.optimizer": "sgd", "model.quantization.layers": {}}
    assert comparison.sweep == {("model.weight_decay",): [0.0, 0.0001]}
    assert comparison.seeds == [0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("setups: {a: {model.lerning_rate: 1}}", "setup a: unknown option 'model.lerning_rate'; nearest: mo"),
        ("setups: {a: {model: {quantization: {weigt_bits: 1}}}}", "setup a: unknown option 'model.quantizat"),
        ("setups: {a: {model.learning_rate: x}}", "setup a: model.learning_rate must be a number, got x"),
        ("setups: {a: {model.loss: hubr}}", "setup a: model.loss: unknown name 'hubr'; nearest: huber"),
        ("setups: {a: {model.quantization: 5}}", "setup a: model.quantization must be a group of options, g"),
        ("setups: {a: {model.checkpoint: null}}", "setup a: model.checkpoint must not be null"),
        ("setups: {a: {model.loss: huber, model: {loss: huber}}}", "setup a: model.loss must be given once"),
        ("setups: {a: {trainer.logger: false}}", "setup a: trainer.logger is set by the comparison itself;"),
        ("setups: {a: {meaning: 3}}", "setup a: meaning must be text, got 3"),
        ("setups: {a: 3}", "setup a must be a mapping, got 3"),
        ("setups: {a/b: {}}", "the name of a setup must be text for a folder's name on any system"),
        ("setups: {'con.x': {}}", "not a device of Windows; got 'con.x'"),
        ("setups: {'a b': {}}", "got 'a b'"),
        ("setups: {'': {}}", "got ''"),
        ("setups: {8: {}}", "line 1: a key must be text, got 8; put the name in quotes"),
        ("setups: {}", "setups must name at least one"),
        ("seeds: [0]", "setups must name at least one"),
        ("setups: [a]", "setups must be a mapping, got ['a']"),
        ("setups: {a: {}}\nseed: [1]", "unknown key 'seed'; nearest: seeds"),
        ("setups: {a: {}}\nseeds: []", "seeds must name at least one"),
        ("setups: {a: {}}\nseeds: 3", "seeds must be a list, got 3"),
        ("setups: {a: {}}\nseeds: [1, 1]", "seeds must differ; got 1 twice"),
        ("setups: {a: {}}\nseeds: [true]", "seeds must be 0 to 2^32 - 1, got True"),
        ("setups: {a: {}}\nseeds: [-1]", "seeds must be 0 to 2^32 - 1, got -1"),
        ("setups: {a: {}}\nsweep: {model.los: [huber]}", "sweep of model.los: unknown option 'model.los'; n"),
        ("setups: {a: {}}\nsweep: {model.quantization: [{}]}", "model.quantization must be a group of"),
        ("setups: {a: {}}\nsweep: {model: [x]}", "model must be a group of options, got ['x']"),
        ("setups: {a: {}}\nsweep: {'model.learning_rate,': [1]}", "a name is missing beside a comma"),
        ("setups: {a: {}}\nsweep: {'': [1]}", "a name is missing beside a comma"),
        ("setups: {a: {}}\nagainst: b", "unknown against 'b'; choose from: a"),
        ("setups: {a: {}}\nagainst: [a]", "against must be a str, got ['a']"),
        ("setups: {a: {}}\nequal: 0", "equal must be a list, got 0"),
        ("setups: {a: {}}\nequal: [0]", "equal must hold pairs of two of the setups a; got 0"),
        ("setups: {1.10: {}}", "a key must be text, got 1.10; put the name in quotes"),
        ("setups: {no: {}}", "a key must be text, got no; put the name in quotes"),
        ("setups: {a: {}}\nequal: [[a, a]]", "equal must hold pairs of two of the setups a; got ('a', 'a')"),
        ("setups: {a: {}}\nsweep: {model.loss: []}", "sweep of model.loss: values must name at least one"),
        ("setups: {a: {}}\nsweep: {model.loss: huber}", "sweep of model.loss: values must be a list, got 'h"),
        ("setups: {a: {}}\nsweep: {model.loss: [hubr]}", "sweep of model.loss: model.loss: unknown name 'hu"),
        ("setups: {a: {}}\nsweep: {data.batch_size: [8, 8]}", "sweep of data.batch_size: values must differ"),
        ("setups: {a: {}}\nsweep: {model.loss: [huber], 'model.name, model.loss': [a]}", "options must diff"),
        ("setups: {a: {}}\nequal: [[a, b]]", "equal must hold pairs of two of the setups a; got ('a', 'b')"),
        ("setups: {a: {}}\nequal: [[a]]", "equal must hold pairs of two of the setups a; got ('a',)"),
        ("setups: {a: {}}\nequal: [a]", "equal must hold pairs"),
        ("setups: {a: {}}\nmodel: {loss: hubr}", "model.loss: unknown name 'hubr'; nearest: huber"),
        ("setups: {a: {}}\nmodel: 4", "model must be a mapping, got 4"),
        ("setups:\n  a: {}\n  a: {}", "line 3: 'a' is there twice"),
        ("setups: {a: {}}\nsetups: {b: {}}", "line 2: 'setups' is there twice"),
        ("setups: {a: [}", "expected the node content"),
        ("- a", "a comparison must be a mapping, got ['a']"),
        ("", "a comparison must be a mapping, got None"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        read(tmp_path, text)
    line = str(caught.value)
    assert line.removeprefix("config must be a YAML file; ").startswith(f"{tmp_path / 'compare.yaml'}: ")
    assert message in line
    assert "\n" not in line


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"a\.yaml: "):
        read_comparison(tmp_path / "a.yaml")


def test_setups_are_picked_from_the_file_first_and_then_from_the_library() -> None:
    comparison = parse_comparison({"setups": {"mine": {"model.pack": True}, "zero": {"model.loss": "huber"}}})
    picked = comparison.pick(["packed", "mine", "ste", "zero"])
    assert list(picked.setups) == ["packed", "mine", "ste", "zero"]
    assert picked.setups["zero"] == comparison.setups["zero"]
    assert picked.equal == [("packed", "ste")]
    assert comparison.pick(["packed"]).equal == []
    with pytest.raises(ValueError, match="unknown setup 'stee'; nearest: ste"):
        comparison.pick(["stee"])
    with pytest.raises(ValueError, match="setups must differ; got 'ste' twice"):
        comparison.pick(["ste", "ste"])


def test_a_pair_of_the_library_does_not_hold_for_another_setup_of_that_name() -> None:
    comparison = parse_comparison({"setups": {"ste": {"model.learning_rate": 0.1}}})
    assert comparison.pick(["packed", "ste"]).equal == []


def test_values_laid_over_end_the_sweep_of_these_options() -> None:
    swept = {"model.learning_rate": [0.1, 0.2], ", ".join(BITS): [8, 2]}
    comparison = parse_comparison({"setups": {"a": {}}, "sweep": swept})
    one = comparison.with_values([BITS[0]], [3])
    assert one.base == {BITS[0]: 3}
    assert one.sweep == {("model.learning_rate",): [0.1, 0.2], (BITS[1],): [8, 2]}
    several = comparison.with_values(BITS, [4, 1])
    assert several.sweep == {("model.learning_rate",): [0.1, 0.2], BITS: [4, 1]}


def test_a_picked_comparison_counts_against_a_setup_that_it_has(tmp_path: Path) -> None:
    comparison = read(tmp_path, "setups: {a: {}, b: {model.learning_rate: 0.1}}\nagainst: a")
    assert comparison.pick(["b", "a"]).against == "a"
    assert comparison.pick(["b"]).against is None

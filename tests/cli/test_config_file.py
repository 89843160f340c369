"""YAML files of `train`: what a second one adds, what none may set, and what none may run."""

from pathlib import Path

import pytest

from qat.cli.lightning_cli import TrainCLI
from qat.cli.train import main

SMALL = ["--data.name", "mnist5k", "--model.options.width", "4", "--trainer.accelerator", "cpu"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["fit", *SMALL, *argv])
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert list(Path.cwd().rglob("version_*")) == []
    return err


def test_a_second_file_adds_to_the_first_and_wins_over_it() -> None:
    Path("a.yaml").write_text(
        "model: {learning_rate: 1e-3, options: {width: 8, dropout: 0.1}, "
        "quantization: {weight_bits: 2, "
        "layers: {fc: {weight_bits: 8, power_of_two: true}, blocks.0.conv: {weight_bits: 3}}}}"
    )
    Path("b.yaml").write_text(
        "model: {options: {width: 4}, "
        "quantization: {layers: {fc: {weight_bits: 5}, '*.conv': {weight_bits: 6}}}}"
    )
    cli = TrainCLI("fit", ["--config", "a.yaml", "--config", "b.yaml", *SMALL])
    hparams = cli.model.hparams
    assert hparams["options"] == {"width": 4, "dropout": 0.1}
    assert hparams["learning_rate"] == 0.001
    assert hparams["quantization"]["weight_bits"] == 2
    assert list(hparams["quantization"]["layers"].items()) == [
        ("fc", {"weight_bits": 5, "power_of_two": True}),
        ("blocks.0.conv", {"weight_bits": 3}),
        ("*.conv", {"weight_bits": 6}),
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("model: 3", ["model must be a group of options, got 3"]),
        ("model: null", ["model must be a group of options, got None"]),
        ("model: other.yaml", ["model must be a group of options, got 'other.yaml'"]),
        ("model: {name: lenet}\nmodel: {loss: huber}", ["line 2: 'model' is there twice"]),
        ("data: {seed: 3}", ["data.seed follows from seed_everything: leave it out of a.yaml"]),
        ("model: {seed: 3}", ["model.seed follows from seed_everything"]),
        ("model: {classes: 3}", ["model.classes follows from the data"]),
        ("model: {input_shape: [1, 2, 3]}", ["model.input_shape follows from the data"]),
        ("3", ["config must hold groups such as model, data and trainer, got 3"]),
    ],
)
def test_what_a_file_must_not_hold(text: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.yaml").write_text(text)
    message = refused(capsys, "--config", "a.yaml")
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize(
    "option", ["--model", "--data", "--trainer", "--model.quantization", "--model=a.yaml"]
)
def test_a_file_for_one_group_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.yaml").write_text("name: lenet\nname: lenet")
    message = refused(capsys, option, "a.yaml")
    assert f"{option.strip('-').partition('=')[0]} is a group: give --" in message
    Path("b.yaml").write_text("model.quantization: a.yaml")
    assert "model.quantization must be a group of options, got 'a.yaml'" in refused(capsys, "-c", "b.yaml")


@pytest.mark.parametrize("option", ["model.options", "model.quantization.layers", "trainer.callbacks"])
def test_a_file_for_one_option_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.yaml").write_text("{}")
    assert f"{option} must be" in refused(capsys, f"--{option}", "a.yaml")


TOUCH = "{class_path: os.system, init_args: {command: touch evil}}"
EVIL = {
    "rounding": f"model: {{quantization: {{rounding: {TOUCH}}}}}",
    "rounding_of_a_layer": f"model: {{quantization: {{layers: {{fc: {{rounding: {TOUCH}}}}}}}}}",
    "option": f"model: {{options: {{width: {TOUCH}}}}}",
    "callback": f"trainer: {{callbacks: [{TOUCH}]}}",
    "logger": f"trainer: {{logger: {TOUCH}}}",
    "strategy": f"trainer: {{strategy: {TOUCH}}}",
    "inside_a_callback": "trainer: {callbacks: {class_path: lightning.pytorch.callbacks.LambdaCallback, "
    f"init_args: {{on_fit_start: {TOUCH}}}}}}}",
    "argument_of_a_callback": "trainer: {callbacks: {class_path: lightning.pytorch.callbacks.LambdaCallback, "
    "init_args: {on_fit_start: evil_module.start}}}",
    "argument_of_pythons_library": "trainer: {callbacks: {class_path: lightning.pytorch.callbacks."
    "LambdaCallback, init_args: {setup: shutil.rmtree}}}",
    "own_function": "model: {quantization: {rounding: {class_path: evil_module.run, "
    "init_args: {what: evil}}}}",
    "own_class": "model: {options: {width: {class_path: evil_module.Run, init_args: {what: evil}}}}",
    "another_library": "model: {options: {width: "
    "{class_path: torch.hub.download_url_to_file, init_args: {}}}}",
}
MODULE = """
from pathlib import Path
def run(what): Path(what).touch()
def start(*_): Path("evil").touch()
class Run:
    def __init__(self, what): run(what)
"""


@pytest.mark.parametrize("case", EVIL)
def test_a_file_runs_no_program(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("evil_module.py").write_text(MODULE)
    Path("a.yaml").write_text(EVIL[case])
    refused(capsys, "--config", "a.yaml")
    assert not Path("evil").exists()


@pytest.mark.parametrize(
    ("rounding", "part"),
    [
        ("os.system", "must be user-defined, not of Python's own library"),
        ("sys.exit", "must be user-defined, not of Python's own library"),
        ("builtins.exec", "must be user-defined, not of Python's own library"),
        ("subprocess.run", "must be user-defined, not of Python's own library"),
        ("mine.os.system", "not of Python's own library (posix); got 'mine.os.system'"),
        ("mine.Rounding", "give its apply; got <class 'mine.Rounding'>"),
        ("mine.half", "unknown name in mine 'half'; nearest: half_up"),
        ("mine.none", "rounding must return a tensor for a tensor"),
        ("mine.leaves", "rounding must return a tensor for a tensor"),
        ("mine.three", "rounding must be a name, a function or its import path"),
        ("broken.f", "module broken cannot be imported: SyntaxError: "),
        ("raising.f", "module raising cannot be imported: ZeroDivisionError: division by zero"),
        ("leaving.f", "module leaving cannot be imported: SystemExit: 3"),
        ("nothing.f", "there is no module nothing here or among the packages"),
        ("{a: 3}", "rounding must be a name, a function or its import path"),
        ("[a]", "rounding must be a name, a function or its import path"),
        ("'..'", "rounding must be an import path such as my_module.my_name, got '..'"),
        ("mine.", "rounding must be an import path such as my_module.my_name, got 'mine.'"),
    ],
)
def test_a_rounding_by_import_path(rounding: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(
        "import os, sys, torch\nthree = 3\ndef none(x): pass\ndef leaves(x): sys.exit(5)\n"
        "def half_up(x): return torch.floor(x + 0.5)\nclass Rounding(torch.autograd.Function): pass\n"
    )
    Path("broken.py").write_text("def f(x:\n")
    Path("raising.py").write_text("1 / 0\n")
    Path("leaving.py").write_text("import sys\nsys.exit(3)\n")
    Path("a.yaml").write_text(f"model: {{quantization: {{rounding: {rounding}}}}}")
    assert part in refused(capsys, "--config", "a.yaml")


@pytest.mark.parametrize("rounding", ["good.half_up", "good:half_up", "good.Rounding.apply"])
def test_a_rounding_that_trains(rounding: str) -> None:
    Path("good.py").write_text(
        "import torch\ndef half_up(x): return torch.floor(x + 0.5)\n"
        "class Rounding(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x): return torch.round(x)\n"
    )
    Path("a.yaml").write_text(f"model: {{quantization: {{rounding: '{rounding}'}}}}")
    cli = TrainCLI("fit", ["--config", "a.yaml", *SMALL])
    assert cli.model.hparams["quantization"]["rounding"] == rounding.replace(":", ".")

"""What a user names by import path: one spelling in every verb, and found again in every file."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from qat.cli import main
from qat.cli.export import main as export
from qat.experiment import Comparison, Setup, compare
from qat.layers import Quantization
from qat.training import Classifier
from qat.training.trained_run import load_run

MODULE = """
import torch
import torch.nn.functional as F
from torch import nn
from qat.quantizers import Scale

def gentle(x):
    return x + (torch.round(x) - x).detach()

class Wide(Scale):
    def __init__(self, high, shape=(), axis=None):
        super().__init__(high, axis)
        self.register_buffer("value", torch.ones(shape))
    def measure(self, x):
        axes = [a for a in range(x.dim()) if a != self.axis]
        return 1.5 * x.abs().amax(axes, keepdim=self.axis is not None) / self.high

def two_sigma(x, axis, high):
    axes = [a for a in range(x.dim()) if a != axis]
    return 2 * x.square().mean(axes, keepdim=axis is not None).sqrt()

class Net(nn.Sequential):
    def __init__(self, input_shape, classes):
        c, h, w = input_shape
        super().__init__(nn.Conv2d(c, 4, 3, 2, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(4 * ((h + 1) // 2) * ((w + 1) // 2), classes))

def smoothed(logits, labels):
    return F.cross_entropy(logits, labels, label_smoothing=0.1)

class NotAFunction: pass
three = 3
def two(x, y): return x
def halves(x): return x[:1]
"""
PARTS = {
    "quantization.rounding": "gentle",
    "quantization.weight_scale": "Wide",
    "quantization.activation_scale": "Wide",
    "quantization.activation_observer": "two_sigma",
    "quantization.weight_observer": "two_sigma",
    "name": "Net",
    "loss": "smoothed",
    "teacher": "Net",
}


QUICK = ("quantization.rounding", "name")  # the others take seconds each
EACH = [pytest.param(option, marks=() if option in QUICK else pytest.mark.slow) for option in PARTS]


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the current folder, which each test imports anew."""
    monkeypatch.chdir(tmp_path)
    name = f"parts_{abs(hash(tmp_path)) % 10**9}"
    Path(f"{name}.py").write_text(MODULE)
    path = list(sys.path)
    yield name
    sys.path[:] = path
    sys.modules.pop(name, None)


def train_options(images: Path) -> list[str]:
    options = {"accelerator": "cpu", "enable_progress_bar": "false", "enable_model_summary": "false"}
    options |= {"limit_train_batches": "2", "limit_val_batches": "1", "default_root_dir": "runs"}
    data = ["--data.name", "folder", "--data.data_root", str(images), "--data.batch_size", "8"]
    data += ["--model.learning_rate", "0.0001"]
    return [*data, *(word for key, value in options.items() for word in (f"--trainer.{key}", value))]


def stored(hparams: Any, option: str) -> str:
    for key in option.split("."):
        hparams = hparams[key]
    return str(hparams)


@pytest.mark.parametrize("option", EACH)
def test_a_run_with_a_user_defined_part(option: str, module: str, images: Path) -> None:
    one, other = f"{module}.{PARTS[option]}", f"{module}:{PARTS[option]}"
    options = train_options(images)
    main(["train", "fit", f"--model.{option}", other, *options, "--trainer.max_epochs", "1"])
    assert one in Path("runs/version_0/config.yaml").read_text()
    last = "runs/version_0/checkpoints/last.ckpt"
    ckpt = torch.load(last, weights_only=True)
    assert stored(ckpt["hyper_parameters"], option) == one
    value: Any = other
    for key in reversed(option.split(".")):
        value = {key: value}
    Path("a.yaml").write_text(json.dumps({"model": value}))
    main(["train", "test", "--config", "a.yaml", *options, "--ckpt_path", last])
    resumed = ["--trainer.max_epochs", "2", "--ckpt_path", last]
    main(["train", "fit", "--config", "a.yaml", *options, *resumed])
    again = Classifier.load_from_checkpoint(last)
    assert stored(again.hparams, option) == one
    del sys.modules[module]  # as in another process
    needs_none = option in ("loss", "teacher")  # a finished network does without them
    with pytest.raises(ValueError, match=f"imports nothing: .*; import {module} first .*--modules {module}"):
        Classifier.load_from_checkpoint(last)
    named = [] if needs_none else ["--modules", module]
    data = ["--data", "folder", "--data_root", str(images)]
    Path(last).rename("last.ckpt")
    load_run("last.ckpt", data="folder", data_root=str(images)) if needs_none else None
    export(["last.ckpt", "--sizes", "true", *named, *data])


@pytest.mark.parametrize("option", EACH)
def test_a_comparison_with_a_user_defined_part(
    option: str, module: str, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = f"{module}.{PARTS[option]}", f"{module}:{PARTS[option]}"
    default = {"name": "lenet", "teacher": None, "loss": "huber"}.get(option)
    data = {"name": "folder", "data_root": str(images), "batch_size": 8}
    content = {"data": data, "trainer": {"max_epochs": 1, "limit_train_batches": 1}}
    setups = {"own": {f"model.{option}": other}, "plain": {f"model.{option}": default} if default else {}}
    Path("setups.yaml").write_text(json.dumps(content | {"setups": setups}))
    main(["compare", "--config", "setups.yaml", "--jobs", "1", "--out", "out"])
    Path("sweep.yaml").write_text(
        json.dumps(content | {"setups": {"own": {}}, "sweep": {f"model.{option}": [one]}})
    )
    before = {path: path.stat().st_mtime_ns for path in Path("out").glob("own-*/result.json")}
    assert len(before) == 1
    (result,) = before
    assert stored(json.loads(result.read_text())["settings"]["model"], option) == one
    main(["compare", "--config", "sweep.yaml", "--jobs", "1", "--out", "out"])
    assert {path: path.stat().st_mtime_ns for path in Path("out").glob("own-*/result.json")} != {}
    assert len(list(Path("out").glob("own-*"))) == 1  # another spelling of one identity
    assert f"{module}.{PARTS[option]}" in Path("out/report.md").read_text().replace("\\_", "_")
    with Path(f"{module}.py").open("a") as file:
        file.write("# changed\n")
    main(["compare", "--config", "sweep.yaml", "--jobs", "1", "--out", "out"])
    assert len(list(Path("out").glob("own-*"))) == 2  # another source is another run


WRONG = {
    "quantization.rounding": ["NotAFunction", "three", "two", "halves"],
    "quantization.weight_scale": ["NotAFunction", "three", "gentle"],
    "quantization.activation_observer": ["Wide", "three", "two", "gentle"],
    "name": ["three", "gentle"],
    "loss": ["NotAFunction", "three", "gentle", "halves"],
    "teacher": ["three", "gentle"],
}


@pytest.mark.parametrize("verb", ["train", "compare"])
@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_part_is_one_line_before_any_training(
    verb: str, option: str, module: str, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = dict.fromkeys((f"{module}.{name}" for name in WRONG[option]), "must ")
    cases |= {f"{module}x.f": f"nearest: {module}", f"{module}.{PARTS[option]}x": f"nearest: {PARTS[option]}"}
    data = {"name": "folder", "data_root": str(images)}
    for name, words in cases.items():
        Path("a.yaml").write_text(json.dumps({"data": data, "setups": {"own": {f"model.{option}": name}}}))
        compare = ["compare", "--config", "a.yaml", "--out", "out"]
        train = ["train", "fit", *train_options(images), f"--model.{option}", name]
        with pytest.raises(SystemExit) as leaving:
            main(compare if verb == "compare" else train)
        shown = capsys.readouterr().err
        assert leaving.value.code == 2
        assert shown.startswith("error: ")
        assert shown.count("\n") == 1
        assert words in shown, shown
    assert not Path("out").exists()
    assert not list(Path().glob("runs/version_*"))


@pytest.mark.parametrize("jobs", [2, 1])
def test_python_objects_in_a_comparison_in_other_processes(
    jobs: int, module: str, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    parts = import_module(module)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(Path.cwd())])
    base = {"data.name": "folder", "data.data_root": str(images), "data.batch_size": 8}
    base |= {"trainer.max_epochs": 1, "trainer.limit_train_batches": 1, "model.name": parts.Net}
    setups = {"own": Setup({"model.loss": parts.smoothed})}
    sweep = {("model.quantization.rounding",): [parts.gentle, "ste"]}
    compare(Comparison(base, setups, [0], sweep), "out", jobs)
    results = [json.loads(path.read_text()) for path in Path("out").glob("*/result.json")]
    roundings = {result["settings"]["model"]["quantization"]["rounding"] for result in results}
    assert roundings == {"ste", f"{module}.gentle"}


def test_what_no_file_could_name_is_refused(module: str) -> None:
    def local(x: torch.Tensor) -> torch.Tensor:
        return x.round()

    for rounding in (local, lambda x: x.round(), partial(torch.round, decimals=0)):
        quantization = Quantization(rounding=rounding)
        with pytest.raises(
            ValueError, match=r"rounding must be found by name in a module, .*; import it from"
        ):
            Classifier(quantization=quantization)
        with pytest.raises(ValueError, match="rounding must be found by name in a module"):
            Setup({"model.quantization.rounding": rounding})
        with pytest.raises(ValueError, match="rounding must be found by name in a module"):
            Setup({"model.quantization.layers": {"fc": {"rounding": rounding}}})
    monkey = type("Net", (torch.nn.Module,), {"__module__": "__main__"})
    with pytest.raises(ValueError, match="of the script that runs; import it from a module"):
        Classifier(monkey)


@pytest.mark.parametrize("delta", [0, -1.0, float("nan"), float("inf"), True, "1", None])
def test_delta_out_of_range(delta: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^delta must be a number > 0 and finite, got .*; the default is 1.0$"
    ):
        Classifier(delta=delta)
    with pytest.raises(ValueError, match="delta must be left out unless the loss is huber"):
        Classifier(loss="cross_entropy", delta=0.5)


def test_delta_in_a_comparison(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", "folder", "--data_root", str(images), "--setups", "ste", "--seeds", "0"]
    options += ["--epochs", "1", "--first_last_bits", "2", "--delta", "0.25", "--jobs", "1", "--out", "out"]
    main(["compare", *options])
    assert "loss: huber with delta 0.25" in capsys.readouterr().out
    assert "The training loss is huber with delta 0.25." in Path("out/report.md").read_text()
    (result,) = Path("out").glob("ste-seed0-*/result.json")
    model = json.loads(result.read_text())["settings"]["model"]
    assert (model["delta"], model["quantization"]["first_last_bits"]) == (0.25, 2)
    for option, words in {
        "--loss.delta": "unknown option 'loss.delta'; give --delta",
        "--pack": "set model.pack in a YAML file and name that with --config",
        "--model.delta": "unknown option 'model.delta'; give --delta",
        "--power_of_two": "set model.quantization.power_of_two in a YAML file",
        "--nonsense": "unknown option 'nonsense'",
    }.items():
        with pytest.raises(SystemExit):
            main(["compare", option, "0.5"])
        assert words in capsys.readouterr().err
    for value in ("nan", "0", "-1", "inf", "true"):
        with pytest.raises(SystemExit):
            main(["compare", *options[:-1], "other", "--delta", value])
        assert "delta must be a number" in capsys.readouterr().err
    assert not Path("other").exists()

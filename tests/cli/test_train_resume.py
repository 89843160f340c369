"""A run that was stopped and resumed equals the uninterrupted one, to the last bit."""

import csv
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from qat.cli.train import main
from qat.training import Classifier

Fit = Callable[..., None]


def load(folder: Path, name: str = "last") -> dict[str, Any]:
    """A .ckpt file."""
    return dict(torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True))


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two nested states differ in keys, lengths, values or bits."""
    if isinstance(a, torch.Tensor):
        return [] if a.dtype == b.dtype and torch.equal(a, b) else [path]
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return [path]
        return [found for key in a for found in differences(a[key], b[key], f"{path}/{key}")]
    if isinstance(a, list):
        if len(a) != len(b):
            return [path]
        return [
            found
            for i, (u, v) in enumerate(zip(a, b, strict=True))
            for found in differences(u, v, f"{path}/{i}")
        ]
    return [] if a == b else [path]


def metrics(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def stop_in_epoch(epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the second batch of an epoch."""
    step = Classifier.training_step

    def interrupted(self: Classifier, batch: Any, batch_idx: int) -> Any:
        if self.current_epoch == epoch and batch_idx == 1:
            signal.raise_signal(signal.SIGINT)
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Classifier, "training_step", interrupted)


@pytest.fixture
def stopped(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[int], Path]:
    """Stops a run in the given epoch and returns its folder."""

    def run(epoch: int) -> Path:
        handler = signal.getsignal(signal.SIGINT)
        with monkeypatch.context() as patch:
            stop_in_epoch(epoch, patch)
            with pytest.raises(SystemExit) as stop:
                fit(tmp_path / "run")
        signal.signal(signal.SIGINT, handler)  # Lightning leaves it switched off, as the process ends
        assert stop.value.code == 130
        return tmp_path / "run"

    return run


@pytest.mark.parametrize("epoch", [1, 2])
def test_resumed_equals_uninterrupted(
    epoch: int, fit: Fit, stopped: Callable[[int], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stopped(epoch)
    err = capsys.readouterr().err
    last = run / "version_0" / "checkpoints" / "last.ckpt"
    assert err.startswith("stopped; to go on: ")
    assert err.count("\n") == 1
    assert str(last) in err
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    torch.rand(7)  # another process has another state of the global generator
    words = shlex.split(err.removeprefix("stopped; to go on: "))
    assert words[1:5] == ["-m", "qat", "train", "fit"]
    main(words[4:])
    fit(tmp_path / "whole")
    assert [path for path, content in before.items() if path.read_bytes() != content] == []

    resumed, whole = run / "version_1", tmp_path / "whole" / "version_0"
    a, b = load(whole), load(resumed)
    assert a["epoch"] == 2
    assert any(key.startswith("optimizer_states") for key in a)
    assert differences(a, b) == []
    assert differences(load(whole, "best"), load(resumed, "best")) == []
    assert metrics(run / "version_0") + metrics(resumed) == metrics(whole)


KILLED = """
import os
import sys
import torch
from qat.training import Classifier
from qat.cli.train import main
step = Classifier.training_step
def dies(self, batch, batch_idx):
    if (self.current_epoch, batch_idx) == (1, 2):
        os._exit(9)
    return step(self, batch, batch_idx)
Classifier.training_step = dies
torch.set_num_threads({threads})
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_killed_in_another_process(fit: Fit, short: list[str], tmp_path: Path) -> None:
    code = KILLED.replace("{threads}", str(torch.get_num_threads()))  # sums differ by their number
    root = ["--trainer.default_root_dir", str(tmp_path / "run")]
    command = [sys.executable, "-c", code, "fit", *short, *root]
    assert subprocess.run(command, check=False).returncode == 9
    fit(tmp_path / "run", "--ckpt_path", str(tmp_path / "run" / "version_0" / "checkpoints" / "last.ckpt"))
    fit(tmp_path / "whole")
    assert differences(load(tmp_path / "whole" / "version_0"), load(tmp_path / "run" / "version_1")) == []


def test_another_seed_makes_a_difference(fit: Fit, tmp_path: Path) -> None:
    fit(tmp_path / "a", "--trainer.max_epochs", "1")
    fit(tmp_path / "b", "--trainer.max_epochs", "1", "--seed_everything", "1")
    found = differences(load(tmp_path / "a" / "version_0"), load(tmp_path / "b" / "version_0"))
    assert "/state_dict/model.fc.weight" in found


def test_the_best_epoch_may_lie_before_the_resume(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def falling(self: Classifier, batch: Any, batch_idx: int) -> None:
        self.log("val_accuracy", 1.0 / (1 + self.current_epoch))

    monkeypatch.setattr(Classifier, "validation_step", falling)
    fit(tmp_path, "--trainer.max_epochs", "1")
    last = str(tmp_path / "version_0" / "checkpoints" / "last.ckpt")
    fit(tmp_path, "--trainer.max_epochs", "2", "--ckpt_path", last)
    assert load(tmp_path / "version_1", "best")["epoch"] == 0
    assert load(tmp_path / "version_1", "last")["epoch"] == 1


def test_a_resumed_run_may_be_longer(fit: Fit, tmp_path: Path) -> None:
    fit(tmp_path, "--trainer.max_epochs", "1")
    last = str(tmp_path / "version_0" / "checkpoints" / "last.ckpt")
    fit(tmp_path, "--trainer.max_epochs", "2", "--ckpt_path", last)
    assert load(tmp_path / "version_1")["epoch"] == 1


def test_stopped_in_the_first_epoch(
    stopped: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(0)
    assert capsys.readouterr().err == "stopped; no epoch was finished, so there is nothing to go on from\n"


def test_a_finished_run_has_nothing_to_resume(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(tmp_path, "--trainer.max_epochs", "1")
    last = str(tmp_path / "version_0" / "checkpoints" / "last.ckpt")
    for options, message in (
        (["--trainer.max_epochs", "1"], "trainer.max_epochs must be above 1"),
        (["--model.quantization.weight_bits", "2"], "model.quantization.weight_bits must be 4, that of"),
        (
            ["--model.options.width", "5"],
            "is of another model than this configuration (use the config.yaml of its run): size mismatch",
        ),
        (
            ["--model.quantization.weight_scale", "learned"],
            "model.quantization.weight_scale must be observed, that of ckpt_path",
        ),
        (
            ["--model.quantization.layers", "{fc: {weight_scale: learned}}"],
            "model.quantization.layers must be {}, that of ckpt_path",
        ),
        (
            ["--model.quantization.weight_observer", "mse"],
            "model.quantization.weight_observer must be max, that of ckpt_path",
        ),
        (["--model.float_epochs", "1"], "model.float_epochs must be 0, that of ckpt_path"),
        (["--model.freeze_epoch", "3"], "model.freeze_epoch must be None, that of ckpt_path"),
        (["--model.optimizer", "sgd"], "model.optimizer must be adamw, that of ckpt_path"),
        (["--model.name", "lenet", "--model.options", "{}"], "is of another model"),
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            fit(tmp_path, *options, "--ckpt_path", last)
        err = capsys.readouterr().err
        assert (stop.value.code, err.count("\n")) == (2, 1)
        assert err.startswith("error: ")
        assert message in err
        assert not (tmp_path / "version_1").exists()


def test_a_run_says_once_what_it_starts_from(
    fit: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    widths = ("weight_bits", "activation_bits", "first_last_bits", "input_bits")
    floats = [word for name in widths for word in (f"--model.quantization.{name}", "32")]
    fit(tmp_path / "float", *floats)
    (start,) = tmp_path.glob("float/*/checkpoints/last.ckpt")
    capsys.readouterr()
    fit(tmp_path / "quantized", "--model.start", str(start))
    assert capsys.readouterr().err.count(f"entries of the network from {start}") == 1

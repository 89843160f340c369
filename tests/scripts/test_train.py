"""The script from the outside."""

import csv
import runpy
import sys
from pathlib import Path

import pytest
import torch

from qat.training import Classifier

SCRIPT = Path(__file__).parents[2] / "scripts" / "train.py"
QUICK = [
    *("--model.options.width", "4", "--trainer.limit_train_batches", "4", "--trainer.accelerator", "cpu"),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def train(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
    runpy.run_path(str(SCRIPT), run_name="__main__")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--help"], ["fit", "validate", "test", "quantization"]),
        (
            ["fit", "--help"],
            ["--model.quantization.weight_bits", "--data.batch_size", "--trainer.max_epochs"],
        ),
    ],
)
def test_help(
    arguments: list[str],
    shown: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stop:
        train(monkeypatch, *arguments)
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert [name for name in shown if name not in out] == []


def test_fit_then_validate_and_test(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # the second run leaves the first one's folder alone
        train(
            monkeypatch, "fit", *QUICK, "--trainer.max_epochs", "2", "--model.quantization.weight_bits", "2"
        )
    first, second = Path("runs/version_0"), Path("runs/version_1")
    assert (first / "metrics.csv").read_bytes() == (second / "metrics.csv").read_bytes()
    assert list(first.glob("events.out.tfevents.*"))
    assert {path.name for path in (first / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    last = str(first / "checkpoints" / "last.ckpt")
    model = Classifier.load_from_checkpoint(last, weights_only=True)
    assert model.hparams["quantization"]["weight_bits"] == 2

    output, error = capfd.readouterr()
    assert error == ""
    assert output == f"written to {first}\nwritten to {second}\n"
    files = sorted(Path("runs").rglob("*"))
    with (first / "metrics.csv").open() as file:
        logged = [row["val_accuracy"] for row in csv.DictReader(file) if row["val_accuracy"]]
    train(monkeypatch, "validate", "--config", str(first / "config.yaml"), "--ckpt_path", last)
    assert logged[-1][:5] in capfd.readouterr().out
    train(monkeypatch, "test", "--config", str(first / "config.yaml"), "--ckpt_path", last)
    assert "test_accuracy" in capfd.readouterr().out
    assert sorted(Path("runs").rglob("*")) == files


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> torch.Tensor:
        raise ValueError("a bug")

    monkeypatch.setattr(Classifier, "training_step", broken)
    with pytest.raises(ValueError, match="a bug"):
        train(monkeypatch, "fit", *QUICK)

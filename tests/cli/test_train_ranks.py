"""Runs of two processes: they count what one counts, and they end together."""

import csv
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

OPTIONS = [
    *("--model.options.width", "4", "--trainer.accelerator", "cpu", "--trainer.deterministic", "true"),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
]
TWO = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
NAN_ON_RANK_1 = """
import sys
from qat.cli.train import main
from qat.training import Classifier
step = Classifier.training_step
def diverging(self, batch, batch_idx):
    images, labels = batch
    if self.global_rank == 1 and batch_idx == 2:
        images = images * float("nan")
    return step(self, (images, labels), batch_idx)
Classifier.training_step = diverging
main(sys.argv[1:])
"""

Train = Callable[..., subprocess.CompletedProcess[str]]


def start(*words: str, **kwargs: Any) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *words], env=environment, **pipes, **kwargs)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data set of three classes: 13 images for training and validation of each class, 7 for testing."""
    torch.manual_seed(0)
    for part, counts in (("train", (13, 13, 13)), ("test", (3, 3, 1))):
        for label, count in enumerate(counts):
            target = tmp_path / "data" / part / str(label)
            target.mkdir(parents=True)
            for index in range(count):
                pixels = torch.randint(0, 255, (12, 12), dtype=torch.uint8).numpy()
                Image.fromarray(pixels).save(target / f"{index}.png")
    return tmp_path / "data"


@pytest.mark.slow
def test_two_processes_count_each_image_once(folder: Path, tmp_path: Path) -> None:
    data = ["--data.name", "folder", "--data.data_root", str(folder), "--data.batch_size", "4"]
    data += ["--data.val_fraction", "0.4"]  # five of each class: 15
    train = ["-m", "qat", "train"]
    root = ["--trainer.default_root_dir", str(tmp_path / "run"), "--trainer.max_epochs", "2"]
    code, out, err = finish(start(*train, "fit", *OPTIONS, *data, *root, *TWO))
    assert (code, err) == (0, "")
    assert out.count("written to") == 1
    last = str(tmp_path / "run" / "version_0" / "checkpoints" / "last.ckpt")
    with (tmp_path / "run" / "version_0" / "metrics.csv").open() as file:
        logged = float([row["val_accuracy"] for row in csv.DictReader(file) if row["val_accuracy"]][-1])
    scores = []
    for verb, devices in (("validate", []), ("test", []), ("test", TWO)):
        code, out, err = finish(start(*train, verb, *OPTIONS, *data, *devices, "--ckpt_path", last))
        assert code == 0, err
        (line,) = [line for line in out.splitlines() if "_accuracy" in line]
        scores.append(float(line.split()[-2 if line.split()[-1] == "│" else -1]))
    assert logged == pytest.approx(scores[0], abs=1e-7)
    assert scores[1] == scores[2]
    assert scores[1] * 7 == pytest.approx(round(scores[1] * 7), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "everyone"), [("SIGTERM", False), ("SIGINT", False), ("SIGINT", True)])
def test_a_signal_ends_both(number: str, everyone: bool, tmp_path: Path) -> None:
    root = ["--trainer.default_root_dir", str(tmp_path), "--trainer.limit_train_batches", "4"]
    options = [*OPTIONS, *root, "--trainer.limit_val_batches", "1", "--trainer.max_epochs", "500", *TWO]
    process = start("-m", "qat", "train", "fit", *options, start_new_session=True)
    last = tmp_path / "version_0" / "checkpoints" / "last.ckpt"
    began = time.monotonic()
    while not last.exists() and time.monotonic() - began < 200:
        time.sleep(0.05)
    assert last.exists()
    (os.killpg if everyone else os.kill)(process.pid, getattr(signal, number))
    code, _, err = finish(process)
    assert (code, err.count("\n")) == (130, 1), err
    words = shlex.split(err.removeprefix("stopped; to go on: "))
    assert words[-2:] == ["--ckpt_path", str(last)]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_in_one_process(tmp_path: Path) -> None:
    root = ["--trainer.default_root_dir", str(tmp_path), "--trainer.limit_train_batches", "4"]
    (tmp_path / "train.py").write_text(NAN_ON_RANK_1)
    code, _, err = finish(start(str(tmp_path / "train.py"), "fit", *OPTIONS, *root, *TWO))
    assert (code, err.count("\n")) == (2, 1), err
    assert err.startswith(
        "error: the loss is nan in epoch 0, batch 2: the images of the batch are not finite"
    )

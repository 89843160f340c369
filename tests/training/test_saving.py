"""The .ckpt files of a run: whole, checked, and with the weights that were measured."""

import errno
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer

from qat.data import ImageData
from qat.layers import Quantization
from qat.training import Classifier
from qat.training.ckpt import read_ckpt
from qat.training.saving import Best, Last, WholeCkpts

CPU: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_model_summary": False}


def fit(folder: Path, ckpt_path: Path | None = None, **options: Any) -> Classifier:
    trainer = Trainer(
        **CPU,
        default_root_dir=folder,
        callbacks=[Best(), Last()],
        plugins=[WholeCkpts()],
        enable_progress_bar=False,
        **{"limit_train_batches": 6, "limit_val_batches": 2, "max_epochs": 2} | options,
    )
    torch.manual_seed(0)
    classifier = Classifier(options={"width": 4}, quantization=Quantization(weight_bits=2))
    trainer.fit(classifier, datamodule=ImageData(), ckpt_path=ckpt_path, weights_only=True)
    return classifier


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The .ckpt files of a run that validates inside its epochs."""
    folder = tmp_path_factory.mktemp("run")
    fit(folder, val_check_interval=2)
    return folder / "checkpoints"


def test_the_best_file_has_the_weights_that_were_measured(run: Path) -> None:
    ckpt = read_ckpt("ckpt_path", run / "best.ckpt")
    (score,) = [state["best_model_score"] for key, state in ckpt["callbacks"].items() if "monitor" in key][:1]
    model = Classifier(options={"width": 4}, quantization=Quantization(weight_bits=2))
    model.load_state_dict(ckpt["state_dict"])
    trainer = Trainer(**CPU, enable_progress_bar=False, limit_val_batches=2, barebones=False)
    (measured,) = trainer.validate(model, ImageData(), verbose=False)
    assert measured["val_accuracy"] == score.item() > 0.1


def test_no_file_holds_a_path(run: Path) -> None:
    for path in run.iterdir():
        assert str(run.parent).encode() not in path.read_bytes()


def test_a_moved_run_keeps_its_best(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "moved").mkdir()
    for name in ("best.ckpt", "last.ckpt"):
        (tmp_path / "moved" / name).write_bytes((run / name).read_bytes())
    high = torch.load(run / "best.ckpt", weights_only=True)
    (state,) = [state for state in high["callbacks"].values() if "best_model_score" in state]
    state["best_model_score"] += 1  # no later validation reaches it
    torch.save(high, tmp_path / "moved" / "best.ckpt")
    fit(tmp_path / "resumed", tmp_path / "moved" / "last.ckpt", max_epochs=3)
    best, last = (tmp_path / "resumed" / "checkpoints" / name for name in ("best.ckpt", "last.ckpt"))
    assert best.read_bytes() == (tmp_path / "moved" / "best.ckpt").read_bytes()
    assert read_ckpt("ckpt_path", last)["epoch"] == 2
    (tmp_path / "moved" / "best.ckpt").unlink()
    fit(tmp_path / "alone", tmp_path / "moved" / "last.ckpt", max_epochs=3)
    assert "the best epoch is chosen anew from here on: best.ckpt must be" in caplog.text
    assert read_ckpt("ckpt_path", tmp_path / "alone" / "checkpoints" / "best.ckpt")["epoch"] == 2


def test_a_flipped_bit_is_found_anywhere(run: Path, tmp_path: Path) -> None:
    content, draw = (run / "last.ckpt").read_bytes(), random.Random(0)
    (tmp_path / "whole.ckpt").write_bytes(content)
    before = read_ckpt("ckpt_path", tmp_path / "whole.ckpt")["state_dict"]
    accepted = []
    for place in [*range(4), *(draw.randrange(len(content)) for _ in range(60)), len(content) - 1]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << draw.randrange(8)
        (tmp_path / "damaged.ckpt").write_bytes(damaged)
        try:
            after = read_ckpt("ckpt_path", tmp_path / "damaged.ckpt")["state_dict"]
        except ValueError as error:
            assert "damaged.ckpt is not one: it " in str(error)  # noqa: PT017
        else:
            assert all(torch.equal(before[key], after[key]) for key in before)
            accepted.append(place)
    assert accepted == []


def test_a_full_disk_keeps_the_earlier_file(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.ckpt"
    WholeCkpts().save_checkpoint({"a": torch.zeros(3)}, path)
    before, write = path.read_bytes(), Path.write_bytes

    def full(self: Path, content: bytes) -> int:
        write(self, content[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*last\.ckpt'"):
        WholeCkpts().save_checkpoint({"a": torch.ones(3)}, path)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [before]

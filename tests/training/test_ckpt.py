"""A .ckpt file says which version wrote it; one that does not fit is refused in one line with the remedy."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from torch.utils.data import DataLoader, TensorDataset

from qat.layers import Quantization
from qat.training import Classifier
from qat.training.ckpt import load_state, read_ckpt
from qat.training.trained_run import load_run

SMALL: dict[str, Any] = {"options": {"width": 4}, "quantization": Quantization(32, 32, 32, 32)}
Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def ckpt(tmp_path: Path) -> Path:
    """The file of a float run of one step."""
    trainer = Trainer(
        accelerator="cpu",
        max_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    data = DataLoader(TensorDataset(torch.rand(4, 1, 28, 28), torch.arange(4)), 4)
    trainer.fit(Classifier(**SMALL), data, data)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


def changed(path: Path, change: Change) -> str:
    content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, path)
    return str(path)


def load_for_resume(path: str) -> None:
    load_state(read_ckpt("ckpt_path", path), path, Classifier(**SMALL))


READERS: dict[str, Callable[[str], Any]] = {
    "ckpt_path": load_for_resume,
    "start": lambda path: Classifier(**SMALL, start=path).load_start(),
    "teacher": lambda path: Classifier(**SMALL, teacher=path).load_teacher(),
    "run": lambda path: load_run(path, None, "mnist5k", None),
}


def renamed(content: dict[str, Any]) -> None:
    state = content["state_dict"]
    state["model.head.weight"] = state.pop("model.fc.weight")


@pytest.mark.parametrize("reader", READERS)
def test_a_file_of_this_version_is_read(reader: str, ckpt: Path) -> None:
    assert torch.load(ckpt, weights_only=True)["qat_version"] == version("qat")
    READERS[reader](str(ckpt))


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_names_no_version_is_refused(reader: str, ckpt: Path) -> None:
    path = changed(ckpt, lambda content: content.pop("qat_version"))
    message = rf"^{reader} {path} was written by qat 0\.1\.0 or earlier, .*; train the network again[^\n]*$"
    with pytest.raises(ValueError, match=message):
        READERS[reader](path)


@pytest.mark.parametrize("reader", READERS)
def test_renamed_keys_name_the_version_that_wrote_them(reader: str, ckpt: Path) -> None:
    def other_version(content: dict[str, Any]) -> None:
        renamed(content)
        content["qat_version"] = "0.0.7"

    path = changed(ckpt, other_version)
    with pytest.raises(ValueError, match=r"^[^\n]*it was written by qat 0\.0\.7, this is qat [^\n]*$"):
        READERS[reader](path)


@pytest.mark.parametrize("reader", ["ckpt_path", "teacher", "run"])
def test_renamed_keys_of_this_version_are_of_another_model(reader: str, ckpt: Path) -> None:
    with pytest.raises(ValueError, match=r"another model .*\(use the config\.yaml of its run\): [^\n]*$"):
        READERS[reader](changed(ckpt, renamed))


def test_an_unknown_hyperparameter_of_a_teacher(ckpt: Path) -> None:
    def newer(content: dict[str, Any]) -> None:
        content["hyper_parameters"]["momentum"] = 0.9
        content["qat_version"] = "9.0.0"

    with pytest.raises(
        ValueError, match=r"^teacher .* cannot be built \(it was written by qat 9\.0\.0, .*momentum"
    ):
        READERS["teacher"](changed(ckpt, newer))

"""The class names of the data in .ckpt files, and the refusal of data with others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningDataModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

from qat.layers import Quantization
from qat.training import Classifier

TRAINER: dict[str, Any] = {
    "accelerator": "cpu",
    "max_steps": 1,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "logger": False,
}
SMALL: dict[str, Any] = {
    "options": {"width": 4},
    "input_shape": (1, 12, 12),
    "classes": 2,
    "quantization": Quantization(32, 32, 32, 32),
}


class Data(LightningDataModule):
    def __init__(self, class_names: Any) -> None:
        super().__init__()
        self.class_names = class_names

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(torch.rand(4, 1, 12, 12), torch.arange(4) % 2), 4)

    val_dataloader = test_dataloader = predict_dataloader = train_dataloader


def write(path: Path, names: Any) -> Path:
    """The .ckpt file of a run of one step."""
    trainer = Trainer(**TRAINER)
    trainer.fit(Classifier(**SMALL), datamodule=Data(names))
    trainer.save_checkpoint(path)
    return path


@pytest.fixture
def ckpt(tmp_path: Path) -> Path:
    return write(tmp_path / "run.ckpt", ("cat", 'do"g'))


def test_the_file_holds_the_names_of_the_data(ckpt: Path) -> None:
    assert torch.load(ckpt, weights_only=True)["class_names"] == ["cat", 'do"g']
    assert Classifier.load_from_checkpoint(ckpt, weights_only=True).class_names == ("cat", 'do"g')


def test_loaders_without_names(ckpt: Path, tmp_path: Path) -> None:
    model = Classifier.load_from_checkpoint(ckpt, weights_only=True)
    trainer = Trainer(**TRAINER)
    trainer.test(model, Data(None).test_dataloader(), verbose=False)
    trainer.save_checkpoint(tmp_path / "again.ckpt")
    assert torch.load(tmp_path / "again.ckpt", weights_only=True)["class_names"] == ["cat", 'do"g']
    nameless = write(tmp_path / "nameless.ckpt", None)
    assert torch.load(nameless, weights_only=True)["class_names"] is None
    model = Classifier.load_from_checkpoint(nameless, weights_only=True)
    assert model.class_names is None
    trainer.test(model, datamodule=Data(["a", "b"]), verbose=False)
    assert model.class_names == ("a", "b")


def test_a_file_without_the_key(ckpt: Path) -> None:
    content = torch.load(ckpt, weights_only=True)
    del content["class_names"]
    torch.save(content, ckpt)
    assert Classifier.load_from_checkpoint(ckpt, weights_only=True).class_names is None


def in_trainer(verb: str) -> Callable[[str, Data], object]:
    def run(path: str, data: Data) -> object:
        model = Classifier.load_from_checkpoint(path, weights_only=True)
        return getattr(Trainer(**TRAINER), verb)(model, datamodule=data)

    return run


def in_training(option: str) -> Callable[[str, Data], object]:
    return lambda path, data: Trainer(**TRAINER).fit(Classifier(**SMALL, **{option: path}), datamodule=data)


def resume(path: str, data: Data) -> None:
    trainer = Trainer(**TRAINER | {"max_steps": 2})
    trainer.fit(Classifier(**SMALL), datamodule=data, ckpt_path=path, weights_only=True)


ENTRIES: dict[str, Callable[[str, Data], object]] = {
    "resume": resume,
    **{verb: in_trainer(verb) for verb in ("fit", "validate", "test", "predict")},
    **{option: in_training(option) for option in ("start", "teacher")},
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_classes_in_another_order_are_refused(entry: str, ckpt: Path) -> None:
    if entry != "predict":
        ENTRIES[entry](str(ckpt), Data(["cat", 'do"g']))
    rule = r"^class names must be equal in the data and in each \.ckpt file: class 0 is [^\n]*; [^\n]*$"
    for names in (['do"g', "cat"], ["bird", 'do"g']):
        with pytest.raises(ValueError, match=rule):
            ENTRIES[entry](str(ckpt), Data(names))


@pytest.mark.parametrize("names", [["a"], ["a", 3], "ab", {"a": 0, "b": 1}, 5, ["a", "b\0"]])
def test_names_that_do_not_fit(names: Any) -> None:
    with pytest.raises(ValueError, match=r"^class_names must be a list of 2 texts, [^\n]*; [^\n]*$"):
        Trainer(**TRAINER).fit(Classifier(**SMALL), datamodule=Data(names))

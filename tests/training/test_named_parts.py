"""A .ckpt file imports nothing that the caller has not imported or named."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from torch import Tensor, nn

from qat.layers import Quantization
from qat.training import Classifier
from qat.training.ckpt import load_teacher
from qat.training.trained_run import load_run

EVIL = "from pathlib import Path\nPath('imported').touch()\n"


def half_up(x: Tensor) -> Tensor:
    return torch.floor(x + 0.5)


def saved(path: Path, **changes: Any) -> Path:
    """A .ckpt file of an untrained network, with changed hyper-parameters."""
    model = Classifier(options={"width": 4})
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, barebones=True)
    trainer.strategy.connect(model)
    trainer.save_checkpoint(path)
    content = torch.load(path, weights_only=True)
    content["hyper_parameters"] |= changes
    torch.save(content, path)
    return path


@pytest.fixture(autouse=True)
def _evil_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evilmod.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


READERS = {
    "python": Classifier.load_from_checkpoint,
    "teacher": lambda path: load_teacher(Classifier, str(path), Classifier(options={"width": 4}).hparams),
    "export": lambda path: load_run(str(path), data="mnist5k"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "changes",
    [
        {"name": "evilmod.Net"},
        {"name": "evilmod:Net"},
        {"name": "os.system"},
        {"quantization": {"rounding": "evilmod.f"}},
        {"quantization": {"rounding": "ste", "layers": {"fc": {"rounding": "evilmod.f"}}}},
        {"name": "torch.utils.bottleneck.__main__.main"},
    ],
    ids=str,
)
def test_nothing_is_imported(reader: str, changes: dict[str, Any]) -> None:
    path = saved(Path("x.ckpt"), **changes)
    with pytest.raises(ValueError, match=r"x\.ckpt: a \.ckpt file imports nothing: .*--modules"):
        READERS[reader](path)
    assert not Path("imported").exists()
    assert "evilmod" not in sys.modules


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("content", [[], 3, "name"], ids=str)
def test_hyper_parameters_of_another_type(reader: str, content: Any) -> None:
    path = saved(Path("x.ckpt"))
    torch.save(torch.load(path, weights_only=True) | {"hyper_parameters": content}, path)
    with pytest.raises(ValueError, match="must hold the arguments"):
        READERS[reader](path)


def net(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 26**2, classes)
    )


@pytest.mark.parametrize("rounding", [half_up, f"{__name__}.half_up"])
def test_what_the_caller_has_imported_is_found_again(
    rounding: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, sys))
    monkeypatch.setattr(sys.modules[__name__], "half_up", half_up, raising=False)
    monkeypatch.setattr(sys.modules[__name__], "net", net, raising=False)
    model = Classifier(f"{__name__}.net", quantization=Quantization(rounding=rounding))
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, barebones=True)
    trainer.strategy.connect(model)
    trainer.save_checkpoint("x.ckpt")
    again = Classifier.load_from_checkpoint("x.ckpt")
    assert again.hparams["quantization"]["rounding"] == f"{__name__}.half_up"
    assert again.model[3].weight_quantizer.rounding is half_up

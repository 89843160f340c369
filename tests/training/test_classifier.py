from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lightning import Trainer
from torch.utils.data import DataLoader, TensorDataset

from qat.gradients import round_zero
from qat.layers import Quantization
from qat.training import Classifier

FLOAT = Quantization(weight_bits=32, activation_bits=32, first_last_bits=32, input_bits=32)
SMALL: dict[str, Any] = {"options": {"width": 4}}


def built(quantization: Quantization, **kwargs: Any) -> Classifier:
    torch.manual_seed(3)
    return Classifier(**SMALL, quantization=quantization, **kwargs)


def loader(count: int, batch_size: int) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(count, 1, 28, 28, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size)


def trainer(**kwargs: Any) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return Trainer(accelerator="cpu", enable_checkpointing=False, max_epochs=1, **quiet, **kwargs)


def test_setups_of_a_seed_start_from_equal_weights() -> None:
    first = dict(built(FLOAT).model.named_parameters())
    for other in (built(Quantization()), built(Quantization(rounding="zero"), checkpoint=["blocks.*"])):
        parameters = dict(other.model.named_parameters())
        assert [name for name in first if not torch.equal(first[name], parameters[name])] == []


def test_huber_is_on_one_hot_targets() -> None:
    logits, labels = torch.tensor([[3.0, 0.0], [0.5, 0.0]]), torch.tensor([0, 1])
    model = Classifier(**SMALL, classes=2)
    expected = F.huber_loss(logits, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    assert torch.equal(model.compute_loss(logits, labels), expected)
    cross_entropy = Classifier(**SMALL, classes=2, loss="cross_entropy").compute_loss(logits, labels)
    assert torch.equal(cross_entropy, F.cross_entropy(logits, labels))


@pytest.mark.parametrize("rounding", ["zero", "ste", round_zero])
def test_hyperparameters_are_plain_and_rebuild_the_model(rounding: Any, tmp_path: Path) -> None:
    model = built(
        Quantization(2, 3, rounding=rounding, layers={"fc": {"weight_bits": 5}}), loss="cross_entropy"
    )
    run = trainer(limit_train_batches=1)
    run.fit(model, loader(8, 8), loader(8, 8))
    run.save_checkpoint(tmp_path / "x.ckpt")
    hyper = torch.load(tmp_path / "x.ckpt", weights_only=True)["hyper_parameters"]
    again = Classifier.load_from_checkpoint(tmp_path / "x.ckpt", weights_only=True)
    assert hyper["quantization"]["weight_bits"] == 2
    assert dict(again.hparams) == dict(model.hparams) == hyper
    images = torch.rand(4, 1, 28, 28)
    assert torch.equal(again.eval()(images), model.eval()(images))


def test_accuracy_and_loss_count_every_sample_once() -> None:
    data = loader(23, 8)  # the last batch has 7
    model = built(Quantization())
    (result,) = trainer().test(model, data, verbose=False)
    images, labels = data.dataset.tensors  # type: ignore[attr-defined]
    with torch.no_grad():
        logits = model.eval()(images)
    assert result["test_accuracy"] == (logits.argmax(1) == labels).float().mean().item()
    assert result["test_loss"] == pytest.approx(model.compute_loss(logits, labels).item(), rel=1e-6)


def test_validation_and_test_move_no_state() -> None:
    model = built(Quantization())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer().validate(model, loader(16, 8), verbose=False)
    trainer().test(model, loader(16, 8), verbose=False)
    assert [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])] == []


def test_zero_gradient_leaves_weights_where_they_were() -> None:
    model = built(Quantization(rounding="zero"))
    before = {name: value.clone() for name, value in model.model.named_parameters()}
    trainer().fit(model, loader(16, 8), loader(8, 8))
    moved = [n for n, value in model.model.named_parameters() if not torch.equal(value, before[n])]
    assert moved == ["fc.bias"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "small_cn"}, "small_cnn"),
        ({"options": {"widht": 3}}, "width"),
        ({"options": {"input_shape": 3}}, "option of small_cnn 'input_shape'"),
        ({"loss": "hubert"}, "huber"),
        ({"optimizer": "adam"}, "adamw"),
        ({"classes": 1}, "classes must be at least 2, got 1"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0 and finite, got 0.0"),
        ({"weight_decay": float("nan")}, "weight_decay must be >= 0 and finite, got nan"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
        ({"checkpoint": ["block.*"]}, "blocks"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classifier(**arguments)

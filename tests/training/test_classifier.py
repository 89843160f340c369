from itertools import product
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
from qat.training.resuming import dropout_seed

FLOAT = Quantization(weight_bits=32, activation_bits=32, first_last_bits=32, input_bits=32)
SMALL: dict[str, Any] = {"options": {"width": 4}}


def built(quantization: Quantization, **kwargs: Any) -> Classifier:
    torch.manual_seed(3)
    return Classifier(**SMALL, quantization=quantization, **kwargs)


def loader(count: int, batch_size: int, classes: int = 10) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(count, 1, 28, 28, generator=generator)
    labels = torch.randint(0, classes, (count,), generator=generator)
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
    assert torch.equal(model.task_loss(logits, labels), expected)
    cross_entropy = Classifier(**SMALL, classes=2, loss="cross_entropy").task_loss(logits, labels)
    assert torch.equal(cross_entropy, F.cross_entropy(logits, labels))


@pytest.mark.parametrize("rounding", ["zero", "ste", round_zero])
def test_hyperparameters_are_plain_and_rebuild_the_model(rounding: Any, tmp_path: Path) -> None:
    layers = {"fc": {"weight_bits": 5, "rounding": rounding}}
    model = built(Quantization(2, 3, rounding=rounding, layers=layers), loss="cross_entropy")
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
    images, labels = data.dataset.tensors
    with torch.no_grad():
        logits = model.eval()(images)
    assert result["test_accuracy"] == (logits.argmax(1) == labels).float().mean().item()
    assert result["test_loss"] == pytest.approx(model.task_loss(logits, labels).item(), rel=1e-6)


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
        ({"seed": -1}, r"seed must be 0 to 2\^32 - 1, got -1"),
        ({"seed": 2**32}, r"seed must be 0 to 2\^32 - 1, got 4294967296"),
        ({"checkpoint": ["block.*"]}, "blocks"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classifier(**arguments)


def teacher_file(path: Path, **kwargs: Any) -> str:
    """A .ckpt file of a float classifier."""
    torch.manual_seed(7)
    teacher = built(Quantization(32, 32, 32, 32), **kwargs)
    run = trainer(limit_train_batches=1)
    images = loader(4, 4, kwargs.get("classes", 10))
    run.fit(teacher, images, images)
    run.save_checkpoint(path)
    return str(path)


def test_a_student_learns_from_its_teacher_which_does_not_change(tmp_path: Path) -> None:
    path = teacher_file(tmp_path / "teacher.ckpt")
    students = [built(Quantization(), teacher=t, distillation="huber") for t in (None, path)]
    students[1].load_state_dict(students[0].state_dict())
    for student in students:
        trainer().fit(student, loader(8, 4), loader(8, 4))
    metrics = students[1].trainer.callback_metrics
    terms = metrics["train_task"] + metrics["train_distillation"]
    assert metrics["train_loss"].item() == pytest.approx(terms.item(), rel=1e-5)
    assert "train_distillation" not in students[0].trainer.callback_metrics
    assert not torch.equal(students[0].model.fc.weight, students[1].model.fc.weight)
    (teacher,) = students[1]._teacher
    stored = torch.load(path, weights_only=True)["state_dict"]
    assert all(torch.equal(stored[key], value) for key, value in teacher.state_dict().items())
    assert list(students[0].state_dict()) == list(students[1].state_dict())


def test_a_teacher_of_other_data_is_refused(tmp_path: Path) -> None:
    path = teacher_file(tmp_path / "teacher.ckpt", classes=3)
    with pytest.raises(
        ValueError, match=r"teacher must have classes 10, got 3 in .*; train one on the same data"
    ):
        built(Quantization(), teacher=path).load_teacher()
    with pytest.raises(ValueError, match=r"teacher must be a \.ckpt file, but there is none at"):
        built(Quantization(), teacher=str(tmp_path / "none.ckpt")).load_teacher()


def test_every_seed_epoch_rank_and_batch_has_its_own_dropout() -> None:
    numbers = product(range(20), range(20), range(4), range(20))
    seeds = [dropout_seed(*each) for each in numbers]
    assert len(set(seeds)) == len(seeds)
    assert 0 <= min(seeds) <= max(seeds) < 2**32
    masks = []
    for seed in (3, 7):
        torch.manual_seed(dropout_seed(seed, 0, 0))
        masks.append(torch.rand(20))
    assert not torch.equal(*masks)


def test_a_user_defined_network_by_its_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user_networks.py").write_text(
        "from torch import nn\n"
        "def tiny(input_shape, classes, width=3):\n"
        "    return nn.Sequential(nn.Conv2d(input_shape[0], width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),\n"
        "                         nn.Flatten(), nn.Linear(width, classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = Classifier(name="user_networks.tiny", options={"width": 5})
    assert model.model[0].out_channels == 5
    assert type(model.model[0]).__name__ == "QuantConv2d"
    run = trainer()
    run.fit(model, loader(4, 4), loader(4, 4))
    run.save_checkpoint(tmp_path / "user.ckpt")
    again = Classifier.load_from_checkpoint(tmp_path / "user.ckpt")
    assert all(torch.equal(again.state_dict()[key], value) for key, value in model.state_dict().items())

"""The options of a recipe: smoothed labels, a whitened first convolution, the rate of BatchNorm's biases."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from torch import nn

from qat.data import ImageData
from qat.layers import Quantization
from qat.losses import cross_entropy
from qat.training import Classifier, parameter_groups
from qat.training.whitening import whitening_filters

FLOAT = Quantization(weight_bits=32, activation_bits=32, first_last_bits=32, input_bits=32)


def test_outputs_of_whitening_filters_are_uncorrelated() -> None:
    torch.manual_seed(0)
    images = torch.nn.functional.avg_pool2d(torch.rand(200, 3, 18, 18), 3, 1)  # neighbours are alike
    filters = whitening_filters(images, 16, (3, 3))
    assert filters.shape == (16, 3, 3, 3)
    assert torch.equal(filters[8:], -filters[:8])
    outputs = torch.nn.functional.conv2d(images, filters[:8]).transpose(0, 1).flatten(1)
    covariance = torch.cov(outputs)
    variances = covariance.diagonal()
    assert (covariance - torch.diag(variances)).abs().max() < 1e-3 * variances.max()  # float32
    assert (variances > 0.5).all()
    assert (variances < 1.01).all()


def test_filters_for_too_many_channels_are_refused() -> None:
    images = torch.rand(4, 1, 8, 8)
    for filters in (7, 20):
        with pytest.raises(ValueError, match=f"an even number of at most 18 channels, got {filters}"):
            whitening_filters(images, filters, (3, 3))


def fit(folder: Path, images: Path, epochs: int = 1, **options: Any) -> Classifier:
    data = ImageData("folder", str(images), batch_size=10)
    model = Classifier(
        "small_cnn", {"width": 4}, (1, 12, 12), 2, options.pop("loss", "cross_entropy"), **options
    )
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(model, data)
    return model


@pytest.mark.parametrize("quantization", [FLOAT, Quantization(), Quantization(deployable=True)])
def test_the_whitened_weight_stays(quantization: Quantization, images: Path, tmp_path: Path) -> None:
    model = fit(tmp_path, images, quantization=quantization, whiten=True, weight_decay=0.1)
    (layer,) = model._whitened
    data = ImageData("folder", str(images))
    expected = whitening_filters(data.sample(5000), layer.out_channels, (3, 3))
    assert torch.equal(layer.weight, expected)
    assert not layer.weight.requires_grad
    (ckpt,) = tmp_path.rglob("*.ckpt")
    loaded = Classifier.load_from_checkpoint(ckpt)
    assert torch.equal(loaded._whitened[0].weight, expected)


def test_labels_are_smoothed_in_training_alone() -> None:
    torch.manual_seed(0)
    model = Classifier(loss="cross_entropy", label_smoothing=0.2, quantization=FLOAT)
    logits, labels = torch.randn(5, 10), torch.arange(5)
    smoothed, _ = model.training_loss(logits=logits, labels=labels)
    assert torch.equal(smoothed, cross_entropy(logits, labels, label_smoothing=0.2))
    assert torch.equal(model.task_loss(logits, labels), cross_entropy(logits, labels))


def test_biases_of_batchnorm_have_a_rate_of_their_own() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.BatchNorm2d(2, affine=False))
    groups = parameter_groups(net, 0.5, 0.1, batchnorm_bias_rate=8)
    assert [(g["lr"], g["weight_decay"], len(g["params"])) for g in groups] == [
        *((0.5, 0.1, 1), (0.5, 0.0, 2), (4.0, 0.0, 1))
    ]
    assert groups[-1]["params"][0] is net[1].bias


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"label_smoothing": 0.1, "loss": "huber"},
            "label_smoothing must be left out unless the loss is cross",
        ),
        ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\), got 1.0"),
        ({"label_smoothing": float("nan")}, "label_smoothing must be in"),
        ({"batchnorm_bias_rate": -1.0}, "batchnorm_bias_rate must be >= 0 and finite, got -1.0"),
        ({"batchnorm_bias_rate": float("nan")}, "batchnorm_bias_rate must be >= 0 and finite, got nan"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classifier(**({"loss": "cross_entropy"} | options))


def test_whiten_needs_a_convolution_first() -> None:
    with pytest.raises(ValueError, match="whiten needs a network whose first layer is a Conv2d"):
        Classifier(f"{__name__}.Flat", whiten=True)


class Flat(nn.Sequential):
    def __init__(self, input_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(784, classes))

"""BatchNorm statistics before a validation: the mean over training batches, whatever ran before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from qat.data import ImageData
from qat.layers import Quantization, quantize, remeasure
from qat.training import Classifier, Reestimation
from tests.training.test_phases import Save

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}
FLOAT = Quantization(32, 32, 32, 32)


def fitted(
    images: Path,
    epochs: int = 2,
    ckpt: Path | None = None,
    callbacks: Sequence[Callback] = (),
    **given: Any,
) -> Classifier:
    torch.manual_seed(3)
    data = ImageData("folder", str(images), batch_size=10, augment=True, seed=1)
    settings = {"batchnorm_batches": 2, "quantization": Quantization()} | given
    model = Classifier("small_cnn", {"width": 4, "dropout": 0.3}, (1, 12, 12), 2, **settings)
    trainer = Trainer(max_epochs=epochs, callbacks=list(callbacks), **QUIET)
    trainer.fit(model, data, ckpt_path=ckpt, weights_only=True)
    return model


def norms(model: nn.Module) -> list[torch.Tensor]:
    return [b for n, b in model.named_buffers() if "running" in n]


def differences(a: nn.Module, b: nn.Module) -> list[str]:
    other = b.state_dict()
    return [key for key, value in a.state_dict().items() if not torch.equal(value, other[key])]


def test_the_statistics_are_those_of_spread_training_batches(images: Path) -> None:
    model = fitted(images)
    data = ImageData("folder", str(images), batch_size=10, augment=True, seed=1)
    train = data.parts[0]
    train.set_epoch(1)
    chosen = [int(len(train) / 20 * n) for n in range(20)]
    batches = [train.__getitems__(chosen[n::2]) for n in range(2)]
    found = [x.clone() for x in norms(model)]
    remeasure(model.model, batches, scales=False)
    assert all(torch.equal(a, b) for a, b in zip(found, norms(model), strict=True))
    moving = norms(fitted(images, batchnorm_batches=0))
    assert not any(torch.equal(a, b) for a, b in zip(found, moving, strict=True))


def test_all_else_is_trained_as_without_it(images: Path) -> None:
    different = differences(fitted(images), fitted(images, batchnorm_batches=0))
    assert different
    assert all("running" in key or "num_batches" in key for key in different)


@pytest.mark.parametrize("settings", [{}, {"quantization": Quantization(deployable=True)}], ids=str)
def test_resumed_equals_uninterrupted(settings: dict[str, Any], images: Path, tmp_path: Path) -> None:
    whole = fitted(images, 3, callbacks=(Save(tmp_path),), **settings)
    for done in (0, 1):
        resumed = fitted(images, 3, tmp_path / f"epoch={done}.ckpt", **settings)
        assert differences(whole, resumed) == []


class Own(LightningModule):
    """Without a forward; its data set is a plain one."""

    def __init__(self) -> None:
        super().__init__()
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 2))
        self.net = quantize(net, Quantization(), torch.rand(2, 1, 8, 8))

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: Any, _: int) -> None:
        assert self.net[1].num_batches_tracked == 3
        assert not self.net[1].training

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_in_any_module() -> None:
    data = TensorDataset(torch.rand(30, 1, 8, 8), torch.randint(2, (30,)))
    trainer = Trainer(max_epochs=1, callbacks=[Reestimation(3)], num_sanity_val_steps=0, **QUIET)
    before = torch.random.get_rng_state()
    trainer.fit(Own(), DataLoader(data, 7, shuffle=True), DataLoader(data, 7))
    assert not torch.equal(before, torch.random.get_rng_state())  # the shuffle's own


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batchnorm_batches": -1}, "batchnorm_batches must be an int >= 1, or 0 to leave it out, got -1"),
        ({"batchnorm_batches": True}, "batchnorm_batches must be an int >= 1"),
        ({"freeze_batchnorm_epoch": 1}, "batchnorm_batches must be 0 with freeze_batchnorm_epoch"),
        ({"batchnorm_batches": 4}, "batchnorm_batches must be at most 3, the batches of an epoch; got 4"),
    ],
)
def test_bad_numbers(settings: dict[str, Any], message: str, images: Path) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(images, **settings)


def test_a_network_without_batchnorm() -> None:
    loader = DataLoader(TensorDataset(torch.rand(4, 1, 28, 28), torch.arange(4)), 2)
    with pytest.raises(ValueError, match="batchnorm_batches needs a network with BatchNorm"):
        Trainer(max_epochs=1, **QUIET).fit(Classifier("lenet", batchnorm_batches=2), loader, loader)

"""The callbacks in a LightningModule that is not of this package."""

from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from qat import Quantization, quantize
from qat.quantizers import Quantizer
from qat.training import EpochBar, Health, Phases, parameter_groups
from qat.training.network import network_of

IMAGES, LABELS = torch.rand(16, 1, 8, 8), torch.randint(3, (16,))


def network(config: Quantization | None = Quantization()) -> nn.Module:  # noqa: B008 - frozen
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    return net if config is None else quantize(net, config, torch.zeros(2, 1, 8, 8))


class Lit(lightning.LightningModule):
    def __init__(self, where: str, config: Quantization | None = Quantization()) -> None:  # noqa: B008
        super().__init__()
        self.where, self.config = where, config
        if where == "net":
            self.net = network(config)
        elif where == "two":
            self.one, self.other = network(config), network(config)
        elif where == "nested":
            self.parts = nn.ModuleDict({"student": network(config), "head": nn.Linear(3, 3)})

    def forward(self, x: Tensor) -> Tensor:
        if self.where == "two":
            return self.one(x) + self.other(x)
        return self.parts["head"](self.parts["student"](x)) if self.where == "nested" else network_of(self)(x)

    def training_step(self, batch: Any, number: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(parameter_groups(self, 0.1))


class Late(Lit):
    """Builds its network in configure_model."""

    def configure_model(self) -> None:
        if not hasattr(self, "late"):
            self.late = network(self.config)


def fit(lit: Lit, *callbacks: Any, epochs: int = 2, **options: Any) -> None:
    loader = DataLoader(TensorDataset(IMAGES, LABELS), batch_size=2)
    fixed = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(
        max_epochs=epochs, callbacks=list(callbacks), **fixed, **({"enable_progress_bar": False} | options)
    )
    trainer.fit(lit, loader)


NAMES = {
    "net": {"0", "1", "3"},
    "late": {"0", "1", "3"},
    "two": {f"{name}.{layer}" for name in ("one", "other") for layer in (0, 1, 3)},
    "nested": {"student.0", "student.1", "student.3"},
}


@pytest.mark.parametrize("where", NAMES)
def test_they_find_the_network_under_any_name(where: str) -> None:
    lit, health = (Late if where == "late" else Lit)(where), Health(1)
    fit(lit, health, Phases(float_epochs=1, freeze_epoch=2), epochs=3)
    assert set(health.layers) == NAMES[where]
    assert all(found[0] is None for shares in health.layers.values() for found in shares.values())
    quantizers = [module for module in lit.modules() if isinstance(module, Quantizer)]
    assert all(quantizer.enabled and quantizer.scale.frozen for quantizer in quantizers)


@pytest.mark.parametrize("callback", [Health(), Phases(float_epochs=1), Phases(freeze_epoch=1)])
def test_a_module_without_quantizers_is_refused_before_the_training(callback: Any) -> None:
    lit = Lit("net", None)
    before = lit.net[0].weight.clone()
    with pytest.raises(
        ValueError, match=r"needs a LightningModule with a quantized network, got a Lit without qu"
    ):
        fit(lit, callback)
    assert torch.equal(lit.net[0].weight, before)


def test_scales_that_the_user_froze_stay_frozen() -> None:
    lit = Lit("net")
    lit.net[0].weight_quantizer.freeze()
    seen = []

    class Watch(lightning.Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            quantizers = lit.net[0].weight_quantizer, lit.net[3].weight_quantizer
            seen.append(tuple(quantizer.scale.frozen for quantizer in quantizers))

    fit(lit, Phases(freeze_epoch=1), Watch())
    assert seen == [(True, False)] * 8 + [(True, True)] * 8
    phases = Phases(freeze_epoch=1)
    phases.enter(lit, 1)
    other = Lit("net")
    phases.enter(other, 1)
    phases.enter(other, 0)
    assert not other.net[3].weight_quantizer.scale.frozen


def test_with_averaged_weights() -> None:
    health = Health(1)
    fit(Lit("net"), health, EMAWeightAveraging(decay=0.9))
    assert set(health.layers) == NAMES["net"]


def test_the_bar_counts_epochs_from_one(capsys: pytest.CaptureFixture[str]) -> None:
    fit(Lit("net"), EpochBar(), epochs=2, enable_progress_bar=True)
    out = capsys.readouterr().out
    assert "Epoch 2/2" in out
    assert "Epoch 1/1" not in out

"""The term of the loss that keeps weights near their codes."""

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning import Trainer
from torch import nn

from qat.layers import Quantization, quantize
from qat.training import Classifier, dampening_loss
from qat.training.dampening import dampening_share
from tests.training.test_phases import Save, loader

CONFIGS = {
    "midtread": Quantization(2, 2, weight_observer="mse"),
    "midrise": Quantization(2, 2, weight_levels="midrise", weight_observer="mean"),
    "learned": Quantization(4, 4, weight_scale="learned"),
    "deployable": Quantization(2, 2, deployable=True),
}


def network(name: str) -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64, 3)),
    )
    return quantize(net, CONFIGS[name], torch.rand(4, 1, 8, 8))


@pytest.mark.parametrize("name", CONFIGS)
def test_value_and_gradient(name: str) -> None:
    model = network(name)
    model(torch.rand(4, 1, 8, 8))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    loss = dampening_loss(model)
    loss.backward()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    expected = 0.0
    for layer in (model[0], model[3], model[7]):
        quantizer = copy.deepcopy(layer.weight_quantizer).eval()
        w = layer.effective_weight.detach()
        s, q = quantizer.scale(w).detach(), quantizer(w).detach()
        inside = (w >= quantizer.grid.low * s) & (w <= quantizer.grid.high * s)
        clamped = torch.where(inside, w, q)
        expected += float((clamped - q).square().sum())
        if name != "deployable":  # there the weight is multiplied by BatchNorm's factor first
            torch.testing.assert_close(layer.weight.grad, torch.where(inside, 2 * (w - q), 0.0))
    assert math.isclose(loss.item(), expected, rel_tol=1e-5)
    assert expected > 0
    scales = [p for n, p in model.named_parameters() if "quantizer" in n]
    assert all(p.grad is None for p in scales)


def test_what_is_not_quantized_counts_nothing() -> None:
    model = network("midrise")
    for layer in (model[0], model[3], model[7]):
        layer.weight_quantizer.enabled = False
    assert dampening_loss(model).item() == 0.0


def test_values_and_ends_have_the_scale_of_the_weight_as_it_is_now() -> None:
    model = network("midtread")  # in training mode, with the scale of the weight before
    layer = model[0]
    expected = dampening_loss(copy.deepcopy(model).eval())
    assert torch.equal(dampening_loss(model), expected)
    with torch.no_grad():
        layer.weight.mul_(3)
    model(torch.rand(2, 1, 8, 8))
    trained = dampening_loss(model)
    with torch.no_grad():
        layer.weight.mul_(2)
    others = network("midtread")
    others[0].weight_quantizer = nn.Identity()
    torch.testing.assert_close(
        dampening_loss(model) - dampening_loss(others), 4 * (trained - dampening_loss(others))
    )


def test_weights_of_dorefa_are_those_after_the_tanh() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    model: Any = quantize(net, Quantization(2, 2, weight_scale="dorefa"), torch.rand(4, 8))
    for layer in (model[0], model[4]):
        layer.weight_quantizer = nn.Identity()
    u = model[2].weight.tanh()
    u = u / u.abs().amax(1, keepdim=True)
    expected = (u - u.round()).square().sum()  # the scale of -1, 0, 1 is 1
    torch.testing.assert_close(dampening_loss(model), expected)


def test_the_share_rises_from_the_first_quantized_epoch() -> None:
    def share(step: int, first: int = 2, epochs: int | None = 4) -> float:
        trainer: Any = SimpleNamespace(
            estimated_stepping_batches=40,
            num_training_batches=10,
            accumulate_grad_batches=1,
            max_epochs=epochs,
            global_step=step,
        )
        return dampening_share(trainer, first)

    def without_epochs(steps: float, batches: float, step: int, first: int) -> float:
        trainer: Any = SimpleNamespace(
            estimated_stepping_batches=steps,
            num_training_batches=batches,
            accumulate_grad_batches=1,
            max_epochs=-1,
            global_step=step,
        )
        return dampening_share(trainer, first)

    assert [share(step) for step in (0, 20, 30, 40)] == pytest.approx([0, 0, 0.5, 1])
    assert share(20, first=0) == pytest.approx(0.5)
    assert share(30, epochs=-1) == pytest.approx(0.5)  # the end is that of max_steps
    assert without_epochs(40, math.inf, 20, 0) == pytest.approx(0.5)
    assert [without_epochs(math.inf, 10, step, 2) for step in (19, 20)] == [0, 1]
    assert without_epochs(math.inf, math.inf, 99, 1) == 0  # it never ends epoch 0


def fitted(epochs: int, ckpt: Path | None = None, *callbacks: Any, dampening: float = 0.1) -> Classifier:
    torch.manual_seed(3)
    model = Classifier(
        options={"width": 4},
        quantization=CONFIGS["midrise"],
        learning_rate=0.02,
        dampening=dampening,
        weight_schedule=[32, 2],
    )
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = Trainer(
        accelerator="cpu", enable_checkpointing=False, max_epochs=epochs, callbacks=list(callbacks), **quiet
    )
    trainer.fit(model, loader(), loader(), ckpt_path=ckpt, weights_only=True)
    assert ("train_dampening" in trainer.callback_metrics) == bool(dampening)
    return model


def test_it_brings_weights_to_their_codes_and_resumes(tmp_path: Path) -> None:
    plain, damped = fitted(3, dampening=0.0), fitted(3, None, Save(tmp_path))
    assert dampening_loss(damped.model) < 0.9 * dampening_loss(plain.model)
    resumed = fitted(3, tmp_path / "epoch=1.ckpt").state_dict()
    assert [key for key, value in damped.state_dict().items() if not torch.equal(value, resumed[key])] == []


@pytest.mark.parametrize("factor", [-1.0, math.nan, math.inf])
def test_bad_factors(factor: float) -> None:
    with pytest.raises(ValueError, match=f"dampening must be >= 0 and finite, got {factor}"):
        Classifier(dampening=factor)


def test_a_network_without_quantized_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="dampening needs a network with quantized weights, got none in Lin"):
        dampening_loss(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="dampening needs a network with quantized weights, got none"):
        Classifier(dampening=0.1, quantization=Quantization(32, 32, 32, 32))

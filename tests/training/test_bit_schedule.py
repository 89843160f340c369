"""Schedules of bits: the width in each epoch, over the same range, and exact when resumed."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer

from qat.layers import Quantization, weight_codes
from qat.memory import packed_activations
from qat.quantizers import (
    IntGrid,
    LearnedScale,
    ObservedScale,
    PactScale,
    PowerOfTwo,
    Quantizer,
    activation_quantizer,
    weight_quantizer,
)
from qat.training import Classifier
from tests.training.test_phases import Save, loader

W2A2 = Quantization(2, 2, activation_scale="learned", weight_levels="midrise")
PLAN: dict[str, Any] = {"weight_schedule": [32, 4, 4, 2], "activation_schedule": [32, 4, 2]}


class Widths(Callback):
    """The bits of a weight and an activation in the middle, at each training batch."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        layer, act = pl_module.model.blocks[1].conv, pl_module.model.blocks[0].act
        bits = [q.grid.bits if q.enabled else 32 for q in (layer.weight_quantizer, act.quantizer)]
        if not self.seen or self.seen[-1] != tuple(bits):
            self.seen.append((bits[0], bits[1]))


def fitted(epochs: int, ckpt: Path | None = None, *callbacks: Callback, **arguments: Any) -> Classifier:
    torch.manual_seed(3)
    settings = {"quantization": W2A2, "options": {"width": 4, "dropout": 0.3}, **PLAN, **arguments}
    model = Classifier(learning_rate=0.02, **settings)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = Trainer(
        accelerator="cpu", enable_checkpointing=False, max_epochs=epochs, callbacks=list(callbacks), **quiet
    )
    trainer.fit(model, loader(), loader(), ckpt_path=ckpt, weights_only=True)
    return model


def differences(a: Classifier, b: Classifier) -> list[str]:
    other = b.state_dict()
    return [key for key, value in a.state_dict().items() if not torch.equal(value, other[key])]


def test_activations_go_down_before_weights() -> None:
    widths = Widths()
    model = fitted(4, None, widths)
    assert widths.seen == [(32, 32), (4, 4), (4, 2), (2, 2)]
    ends = [model.model.blocks[0].conv.weight_quantizer, model.model.fc.weight_quantizer]
    assert [q.grid.bits for q in ends] == [8, 8]


CASES = {
    "midrise": {},
    "observed": {"quantization": Quantization(2, 2)},
    "power of two": {"quantization": Quantization(2, 2, power_of_two=True)},
    "learned": {"quantization": Quantization(2, 2, weight_scale="learned", activation_scale="learned")},
    "checkpointed": {"checkpoint": ["blocks.*"]},
    "packed": {"pack": True},
    "deployable": {"quantization": Quantization(2, 2, deployable=True, weight_levels="midrise")},
}


@pytest.mark.parametrize("case", CASES)
def test_resumed_equals_uninterrupted(case: str, tmp_path: Path) -> None:
    whole = fitted(4, None, Save(tmp_path), **CASES[case])
    for done in range(3):
        ckpt = tmp_path / f"epoch={done}.ckpt"
        assert differences(fitted(4, ckpt, **CASES[case]), whole) == []
        loaded = Classifier.load_from_checkpoint(ckpt)
        layer = loaded.model.blocks[1].conv
        assert layer.weight_quantizer.grid.bits == (4 if 0 < done < 3 else 2)
        assert layer.weight_quantizer.enabled == (done > 0)


@pytest.mark.parametrize("other", ["checkpointed", "packed"])
def test_memory_saving_changes_no_bit(other: str) -> None:
    assert differences(fitted(4), fitted(4, **CASES[other])) == []


QUANTIZERS = {
    "learned": lambda: Quantizer(IntGrid(2), LearnedScale(1)),
    "pact": lambda: Quantizer(IntGrid(2, signed=False), PactScale(3)),
    "ema": lambda: Quantizer(IntGrid(2, signed=False), ObservedScale(3, "ema")),
    "power of two": lambda: Quantizer(IntGrid(2), PowerOfTwo(LearnedScale(1))),
    "asymmetric": lambda: activation_quantizer(torch.randn(9), 2, signed=True, asymmetric=True),
    "mean, midrise": lambda: weight_quantizer(
        torch.randn(9), 2, axis=None, observer="mean", levels="midrise"
    ),
    "dorefa": lambda: weight_quantizer(torch.randn(9), 2, axis=None, scale="dorefa"),
}


@pytest.mark.parametrize("name", QUANTIZERS)
def test_a_wide_quantizer_has_the_same_range_and_comes_back(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(400)
    quantizer: Any = QUANTIZERS[name]()
    quantizer(x)
    quantizer.freeze()
    before, own = quantizer.grid.high * quantizer.scale(x), quantizer(x)
    quantizer.widen(4)
    assert quantizer.grid.bits == 4
    assert (quantizer.grid.midrise, quantizer.scale.high) == (quantizer.own_grid.midrise, quantizer.grid.high)
    wide = quantizer(x)
    assert len(wide.unique()) > 2 * len(own.unique())
    if name != "power of two":  # 15 / 1 is no power of two
        torch.testing.assert_close(quantizer.grid.high * quantizer.scale(x), before)
    other = QUANTIZERS[name]()
    other.load_state_dict(quantizer.state_dict())
    assert torch.equal(other(x), wide)
    twin = copy.deepcopy(quantizer)
    quantizer.widen(None)
    assert quantizer.grid == quantizer.own_grid
    torch.testing.assert_close(quantizer(x), own)  # the scale was divided and multiplied again
    other.load_state_dict(quantizer.state_dict())
    assert torch.equal(other(x), quantizer(x))
    assert torch.equal(twin(x), wide)


def test_a_midrise_weight_of_many_bits_has_a_zero_for_a_while() -> None:
    quantizer = weight_quantizer(torch.randn(50), 2, axis=None, observer="mean", levels="midrise")
    quantizer.widen(8)
    assert (quantizer.grid, quantizer.scale.step) == (IntGrid(8), 1)
    quantizer.widen(2)
    assert (quantizer.grid, quantizer.scale.step) == (IntGrid(2, midrise=True), 2)


def test_packed_codes_follow_the_width() -> None:
    model = fitted(1).model
    x = torch.rand(4, 1, 28, 28)
    for bits in (None, 4):
        for module in model.modules():
            if isinstance(module, Quantizer):
                module.enabled = True
                module.widen(bits)
        model.eval()
        plain = torch.autograd.grad(model(x).square().sum(), model.blocks[0].conv.weight)[0]
        with packed_activations():
            loss = model(x).square().sum()
        assert torch.equal(torch.autograd.grad(loss, model.blocks[0].conv.weight)[0], plain)
        codes, _, _ = weight_codes(model.blocks[1].conv)
        assert codes.abs().max() == (15 if bits else 3)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ([2, 4], "weight_schedule must not grow"),
        ([9, 2], "weight_schedule must list bits of 1, 2, 3, .*32; got 9"),
        (["a"], "weight_schedule must list bits of 1, .*; got 'a'"),
        ([True], "weight_schedule must list bits of"),
        ({0: 32}, "weight_schedule must list the bits of epoch 0, 1, "),
        ("32", "weight_schedule must list the bits of epoch 0, 1, "),
    ],
)
def test_wrong_schedules(schedule: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classifier(quantization=W2A2, weight_schedule=schedule)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="activation_schedule must be left out with float_epochs"):
        Classifier(quantization=W2A2, activation_schedule=[4, 2], float_epochs=1)
    with pytest.raises(ValueError, match="weight_schedule must end with the bits of the network, 2 in "):
        fitted(1, weight_schedule=[32, 4])
    with pytest.raises(ValueError, match="Phases needs a LightningModule with a quantized network"):
        fitted(1, quantization=Quantization(32, 32, 32, 32), weight_schedule=[32, 4])
    fitted(2, None, Save(tmp_path))
    for other in ([], [32, 4, 2]):
        with pytest.raises(ValueError, match="weight_schedule must be that of the run that is resumed"):
            fitted(4, tmp_path / "epoch=1.ckpt", weight_schedule=other)

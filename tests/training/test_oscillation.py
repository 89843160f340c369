"""Weights that turn often are frozen to their average code, and stay there."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import Tensor, nn

from qat.layers import Quantization, quantize, weight_codes
from qat.training import Classifier, FreezeOscillating, Phases
from qat.training.oscillation import _State
from tests.training.test_phases import Save, loader
from tests.training.test_your_own_module import Lit, fit

QUIET: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
CONFIGS = {
    "largest": Quantization(4, 4),
    "midrise": Quantization(2, 2, weight_levels="midrise", weight_observer="mean"),
    "least error": Quantization(4, 4, weight_observer="mse", per_channel=False),
    "learned": Quantization(2, 2, weight_scale="learned", activation_scale="learned"),
    "one bit": Quantization(1, 2, rounding="stochastic"),
    "deployable": Quantization(2, 4, deployable=True),
}


class Watch(Callback):
    """Compares the codes of frozen elements with those of the weight after each batch."""

    def __init__(self) -> None:
        self.frozen: list[int] = []
        self.kept: dict[str, tuple[Tensor, Tensor]] = {}

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        (freeze,) = (c for c in trainer.callbacks if isinstance(c, FreezeOscillating))
        self.frozen.append(sum(int(state.frozen.sum()) for state in freeze._states.values()))
        for name, state in freeze._states.items():
            layer = freeze._layers[name]
            codes, frozen = weight_codes(layer).codes, layer.own_form(state.frozen)
            assert torch.equal(codes[frozen], layer.own_form(state.codes)[frozen].int())
            mask, before = self.kept.get(name, (frozen & False, codes))
            assert frozen[mask].all()
            assert torch.equal(codes[mask], before[mask])
            self.kept[name] = frozen, codes


def fitted(
    epochs: int = 4, ckpt: Path | None = None, callbacks: tuple[Callback, ...] = (), **arguments: Any
) -> tuple[Classifier, Trainer, Watch]:
    torch.manual_seed(3)
    options: dict[str, Any] = {"options": {"width": 4}, "learning_rate": 0.1, "optimizer": "sgd"}
    model = Classifier(**options | {"freeze_oscillating": 0.001} | arguments)
    watch = Watch()
    trainer = Trainer(
        accelerator="cpu",
        enable_checkpointing=False,
        max_epochs=epochs,
        callbacks=[*callbacks, watch],
        **QUIET,
    )
    trainer.fit(model, loader(), loader(), ckpt_path=ckpt, weights_only=True)
    return model, trainer, watch


@pytest.mark.parametrize("name", CONFIGS)
def test_frozen_elements_keep_their_code_from_step_to_step(name: str) -> None:
    _, trainer, watch = fitted(6, quantization=CONFIGS[name], weight_decay=0.01)
    assert watch.frozen == sorted(watch.frozen)
    assert watch.frozen[-1] > 0
    weights = sum(codes.numel() for _, codes in watch.kept.values())
    assert trainer.callback_metrics["frozen_weights"] == pytest.approx(watch.frozen[-1] / weights)
    assert "fc" not in watch.kept  # 8 bits


def one_layer(codes: list[float], scale: float = 0.5) -> Any:
    """A layer on the codes -1, 0, 1 with a fixed scale."""
    layer: Any = quantize(
        nn.Sequential(nn.Linear(len(codes), 1, bias=False)),
        Quantization(2, 2, 2, 2),
        torch.ones(2, len(codes)),
    )[0]
    layer.weight_quantizer.scale.value.fill_(scale)
    layer.weight_quantizer.freeze()
    layer.weight.data.copy_(torch.tensor([codes]) * scale)
    return layer


def test_frequency_average_and_freezing_are_those_of_the_formulas() -> None:
    # Each element is a path of codes; the first is where it starts.
    generator = torch.Generator().manual_seed(5)
    paths = torch.randint(-1, 2, (6, 120), generator=generator).float()
    paths[0], paths[1] = torch.arange(120) % 2, -(torch.arange(120) % 2)
    paths[2, :] = 1.0
    layer = one_layer(paths[:, 0].tolist())
    state = _State.of(layer)
    expected = []
    for path in paths.tolist():
        code, direction, frequency, average, frozen = path[0], 0.0, 0.0, path[0], None
        for new in path[1:] if frozen is None else []:
            change = new - code
            frequency = 0.99 * frequency + 0.01 * (change * direction < 0)
            average = 0.99 * average + 0.01 * new
            direction, code = math.copysign(1, change) if change else direction, new
            if frequency > 0.3:
                frozen = round(average)
                break
        expected.append((frequency, average, frozen))
    for column in paths.T[1:]:
        layer.weight.data.copy_(torch.where(state.frozen, layer.weight.data, column[None] * 0.5 + 0.01))
        state.update(layer, 0.3)
    for place, (frequency, average, frozen) in enumerate(expected):
        assert bool(state.frozen[0, place]) == (frozen is not None)
        if frozen is None:
            assert state.frequency[0, place].item() == pytest.approx(frequency, abs=1e-5)
            assert state.average[0, place].item() == pytest.approx(average, abs=1e-5)
        else:
            assert layer.weight[0, place].item() == 0.5 * frozen  # the others are 0.01 beside their value
    assert {True, False} == {frozen is not None for _, _, frozen in expected}


def test_a_frozen_element_follows_the_scale() -> None:
    layer = one_layer([1.0, 0.0, -1.0])
    state = _State.of(layer)
    state.frozen = torch.tensor([[True, True, False]])
    layer.weight.data.add_(0.1)
    layer.weight_quantizer.scale.value.fill_(2.0)
    state.update(layer, 1.0)
    torch.testing.assert_close(layer.weight.data, torch.tensor([[2.0, 0.0, -0.4]]))


def test_a_frozen_element_that_sets_the_scale_does_not_drift() -> None:
    layer = one_layer([1.0, 0.25, -0.75])
    layer.weight_quantizer.unfreeze()  # the largest magnitude is the scale, that of the frozen element
    layer.train()
    layer.weight_quantizer.observe(layer.weight)
    state = _State.of(layer)
    state.frozen = torch.tensor([[True, True, False]])
    for _ in range(3):
        layer.weight.data.add_(torch.tensor([[0.1, 0.1, -0.01]]))
        state.update(layer, 1.0)
    torch.testing.assert_close(layer.weight.data, torch.tensor([[0.5, 0.0, -0.405]]))
    layer.weight.data[0, 2] = -2.0  # now this one sets it, before any forward has observed it
    state.update(layer, 1.0)
    assert layer.weight.tolist() == [[2.0, 0.0, -2.0]]


def test_a_deployable_layer_freezes_the_weight_with_batchnorm_folded() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    model: Any = quantize(net, Quantization(4, 4, 4, 4, deployable=True), torch.rand(2, 1, 8, 8))
    layer, norm = model[0], model[1]
    norm.weight.data.copy_(torch.tensor([0.1, -3.0, 0.0, 5.0]))
    state = _State.of(layer)
    state.frozen.fill_(True)
    codes, values = weight_codes(layer).codes, layer.effective_weight.detach().clone()
    norm.running_var.mul_(1.7)
    layer.weight.data.add_(torch.randn(layer.weight.shape), alpha=0.01)
    state.update(layer, 1.0)
    assert torch.equal(weight_codes(layer).codes, codes)
    torch.testing.assert_close(layer.effective_weight.detach(), codes * state.scale)
    assert (layer.effective_weight - values).abs().max() < state.scale.max()


def test_the_threshold_falls_by_a_cosine(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(_State, "update", lambda self, layer, threshold: seen.append(threshold))
    fit(Lit("net", Quantization(8, 8, 4)), FreezeOscillating(0.02), Phases(float_epochs=1), epochs=3)
    # Two layers, 8 steps in each epoch.
    shares = [0.5 * (1 - math.cos(math.pi * step / 16)) for step in range(16)]
    assert seen[::2] == seen[1::2] == pytest.approx([0.1 - 0.08 * share for share in shares])


@pytest.mark.parametrize(
    "phases", [{"float_epochs": 2}, {"weight_schedule": [32, 4, 2]}], ids=["float", "schedule"]
)
def test_it_begins_with_the_weights_own_bits_and_resumes(phases: dict[str, Any], tmp_path: Path) -> None:
    arguments = {"quantization": CONFIGS["midrise"], **phases}
    model, trainer, watch = fitted(6, None, (Save(tmp_path),), **arguments)
    (freeze,) = (c for c in trainer.callbacks if isinstance(c, FreezeOscillating))
    assert freeze._first_step == 6
    assert watch.frozen[:6] == [0] * 6
    assert watch.frozen[-1] > 0
    expected = model.state_dict()
    for epoch in (1, 3):
        again, resumed, _ = fitted(6, tmp_path / f"epoch={epoch}.ckpt", **arguments)
        found = again.state_dict()
        assert [key for key, value in expected.items() if not torch.equal(value, found[key])] == []
        (other,) = (c for c in resumed.callbacks if isinstance(c, FreezeOscillating))
        for name, state in freeze._states.items():
            for key, value in vars(other._states[name]).items():
                assert torch.equal(value, getattr(state, key)), (name, key)
    with pytest.raises(ValueError, match=r"freeze_oscillating must be that of the run .* 0\.001; got 0\.05"):
        fitted(6, tmp_path / "epoch=3.ckpt", freeze_oscillating=0.05, **arguments)


def test_checkpointed_blocks_and_averages_see_frozen_weights() -> None:
    arguments = {"quantization": CONFIGS["midrise"]}
    plain = fitted(**arguments)[0].state_dict()
    checkpointed = fitted(checkpoint=["blocks.*"], pack=True, **arguments)[0].state_dict()
    assert [key for key, value in plain.items() if not torch.equal(value, checkpointed[key])] == []
    _, _, watch = fitted(4, None, (EMAWeightAveraging(decay=0.9),), **arguments)
    assert watch.frozen[-1] > 0


def test_without_turns_nothing_changes() -> None:
    options: dict[str, Any] = {"quantization": CONFIGS["largest"], "learning_rate": 1e-5}
    still, _, watch = fitted(2, **options)
    torch.manual_seed(3)
    other = Classifier(options={"width": 4}, optimizer="sgd", **options)
    trainer = Trainer(accelerator="cpu", enable_checkpointing=False, max_epochs=2, **QUIET)
    trainer.fit(other, loader(), loader())
    assert watch.frozen[-1] == 0
    found = still.state_dict()
    assert [key for key, value in other.state_dict().items() if not torch.equal(value, found[key])] == []


@pytest.mark.parametrize("where", ["net", "two", "nested"])
def test_in_any_module(where: str) -> None:
    lit = Lit(where, Quantization(2, 2, 2, 2))
    freeze = FreezeOscillating(0.001)
    fit(lit, freeze, epochs=3)
    assert len(freeze._states) == (4 if where == "two" else 2)
    assert freeze._hooks == []
    assert all(not optimizer._optimizer_step_post_hooks for optimizer in lit.trainer.optimizers)
    assert 0 <= lit.trainer.callback_metrics["frozen_weights"] <= 1
    other = Lit(where, Quantization(2, 2, 2, 2))
    fit(other, freeze, epochs=1, max_steps=1)
    assert all(not state.frequency.any() for state in freeze._states.values())  # of this run alone


def test_weights_outside_of_the_optimizer_stay() -> None:
    class Half(Lit):
        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.net[3].parameters(), 0.1)

    freeze = FreezeOscillating(0.05)
    fit(Half("net", Quantization(2, 2, 2, 2)), freeze)
    assert set(freeze._states) == {"3"}


def test_grouped_and_transposed_weights() -> None:
    layer: Any = quantize(
        nn.Sequential(nn.ConvTranspose2d(4, 8, 3, groups=2)), Quantization(2, 2, 2, 2), torch.rand(2, 4, 5, 5)
    )[0]
    state = _State.of(layer)
    state.frozen.fill_(True)
    codes = weight_codes(layer).codes
    layer.weight.data.add_(0.3 * torch.randn(layer.weight.shape))
    state.update(layer, 1.0)
    assert torch.equal(weight_codes(layer).codes, codes)


@pytest.mark.parametrize("threshold", [0.0, -0.1, 0.1, 1.0, math.nan, True, "0.01"])
def test_wrong_thresholds(threshold: Any) -> None:
    for build in (FreezeOscillating, lambda t: Classifier(freeze_oscillating=t)):
        with pytest.raises(
            ValueError, match=r"freeze_oscillating must be a threshold above 0 and below 0\.1"
        ):
            build(threshold)


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        (Quantization(32, 32, 32, 32), "needs quantized weights of at most 4 bits, got none"),
        (Quantization(5, 5), "needs quantized weights of at most 4 bits, got none"),
        (Quantization(4, 4, weight_scale="dorefa"), "only scales, without a transform, got DorefaScale in"),
    ],
)
def test_networks_without_such_weights(quantization: Quantization, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classifier(quantization=quantization, freeze_oscillating=0.01)
    lit = Lit("net", quantization)
    with pytest.raises(ValueError, match="needs"):
        fit(lit, FreezeOscillating(0.01))
    with pytest.raises(
        ValueError, match="FreezeOscillating needs a LightningModule with a quantized network"
    ):
        fit(Lit("net", None), FreezeOscillating(0.01))


@pytest.mark.parametrize("phases", [{"float_epochs": 2}, {"weight_schedule": [32, 8, 4]}])
def test_a_run_that_ends_before_it_begins(phases: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"freeze_oscillating needs trainer\.max_epochs above 2, .* got 2"):
        fitted(2, **phases)
    (freeze,) = (
        c
        for c in Classifier(freeze_oscillating=0.01, **phases).configure_callbacks()
        if isinstance(c, FreezeOscillating)
    )
    trainer = Trainer(accelerator="cpu", max_epochs=2, **QUIET)
    with pytest.raises(ValueError, match="above 2"):  # as the command line asks before the run
        freeze.setup(trainer, Classifier(freeze_oscillating=0.01, **phases), "fit")


@pytest.mark.slow
def test_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    # To torch's own operations, which are equal to the last bit.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    losses = []
    for compiles in (False, True):
        arguments: dict[str, Any] = {"quantization": CONFIGS["midrise"], "learning_rate": 0.02}
        _, trainer, watch = fitted(2, compile=compiles, dampening=0.01, **arguments)
        losses.append((trainer.callback_metrics["train_loss"], trainer.callback_metrics["train_dampening"]))
        assert watch.frozen[-1] > 0
    torch.testing.assert_close(*losses, rtol=1e-3, atol=0)

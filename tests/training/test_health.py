"""The statistics are counted right, and a run with the callback equals a run without it."""

import logging
from typing import Any

import pytest
import torch
from lightning import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from qat.gradients import round_stochastic
from qat.layers import Quantization
from qat.quantizers import AsymmetricScale, IntGrid, ObservedScale, PactScale, Quantizer
from qat.training import Classifier
from qat.training.health import Health
from qat.training.layer_statistics import ActivationStatistics, WeightStatistics


def fixed(grid: IntGrid, value: float = 1.0) -> Quantizer:
    """A quantizer whose scale is frozen at `value`."""
    quantizer = Quantizer(grid, ObservedScale(grid.high, "ema"))
    quantizer.scale.value.fill_(value)
    quantizer.freeze()
    return quantizer


def clipped(quantizer: Quantizer, *batches: Tensor, **options: bool) -> float:
    watch = ActivationStatistics(quantizer)
    quantizer.register_forward_hook(watch.update, with_kwargs=True)
    for batch in batches:
        quantizer(batch, **options)
    return watch.compute()["clipped"].item()


def test_clipped_are_the_values_whose_code_is_beyond_the_grid() -> None:
    x = torch.tensor([-16.0, -14.9, -3.0, 0.0, 14.9, 15.1, 16.0, 99.0])
    assert clipped(fixed(IntGrid(4), 2.0), x) == 4 / 8  # -7.5 .. 7.5, times 2
    assert clipped(fixed(IntGrid(4, signed=False)), x, x[4:]) == pytest.approx(
        (5 + 2) / (8 + 4)
    )  # -0.5 .. 15.5
    assert clipped(fixed(IntGrid(1)), torch.tensor([-2.1, -1.9, 0.0, 2.1])) == 2 / 4  # one code is 2 wide
    pact = Quantizer(IntGrid(2, signed=False), PactScale(3))
    pact.scale.clip.data.fill_(3.0)
    pact.freeze()
    assert clipped(pact, torch.tensor([0.0, 2.0, 3.4, 3.6])) == 1 / 4
    range_ = AsymmetricScale(15)
    range_.range.copy_(torch.tensor([-5.0, 10.0]))
    asymmetric = Quantizer(IntGrid(4, signed=False), range_)
    asymmetric.freeze()
    assert clipped(asymmetric, torch.tensor([-5.6, -5.4, 10.4, 10.6])) == 2 / 4


def test_values_that_a_relu_sets_to_zero_are_not_clipped() -> None:
    assert clipped(fixed(IntGrid(4, signed=False)), torch.tensor([-9.0, -1.0, 3.0, 99.0]), relu=True) == 1 / 4


@pytest.mark.parametrize(("grid", "ends"), [(IntGrid(4), (0.0, 1.0)), (IntGrid(1), (-1.0, 1.0))])
def test_codes_are_compared_from_update_to_update(grid: IntGrid, ends: tuple[float, float]) -> None:
    low, high = ends
    # Each row is a weight, each column an update; the first column is the start.
    paths = torch.tensor(
        [
            [low, low, low, low, low],
            [low, high, high, high, high],  # changed once
            [low, high, low, low, low],  # turned once
            [low, high, low, low, high],  # turned twice: a pause in between does not hide it
        ]
    )
    weight = paths[:, 0].clone()
    watch = WeightStatistics(fixed(grid), lambda: weight)
    for column in paths.T[1:]:
        weight.copy_(column)
        watch.update()
    shares = watch.compute()
    assert shares["unchanged"] == 1 / 4
    assert shares["oscillating"] == 1 / 4
    assert shares["weight_scale"] == 1.0


def loader(count: int = 24) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(count, 1, 28, 28, generator=generator)
    return DataLoader(TensorDataset(images, torch.arange(count) % 10), 4)


def fitted(health: Health | None, epochs: int = 2, **arguments: Any) -> Classifier:
    torch.manual_seed(3)
    model = Classifier(**{"options": {"width": 4, "dropout": 0.3}, "learning_rate": 0.02} | arguments)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = Trainer(
        accelerator="cpu",
        enable_checkpointing=False,
        max_epochs=epochs,
        callbacks=[health] if health else [],
        **quiet,
    )
    trainer.fit(model, loader(), loader(8))
    model.drawn = torch.rand(3)  # shows the state of the random generator
    return model


RUNS = {
    "ema": Quantization(2, 2),
    "learned": Quantization(2, 2, weight_scale="learned", activation_scale="learned"),
    "pact": Quantization(2, 2, weight_scale="dorefa", activation_scale="pact", input_signed=True),
    "stochastic": Quantization(4, 4, rounding=round_stochastic),
    "asymmetric": Quantization(4, 4, asymmetric=True, input_signed=True, power_of_two=True),
}


@pytest.mark.parametrize(
    ("name", "checkpoint"), [(name, ["blocks.*"]) for name in RUNS] + [("ema", []), ("learned", [])]
)
def test_a_run_with_the_callback_equals_a_run_without_it(name: str, checkpoint: list[str]) -> None:
    arguments = {"quantization": RUNS[name], "checkpoint": checkpoint}
    plain, watched = fitted(None, **arguments), fitted(Health(1), **arguments)
    found = watched.state_dict()
    assert [key for key, value in plain.state_dict().items() if not torch.equal(value, found[key])] == []
    assert torch.equal(plain.drawn, watched.drawn)
    assert [module for module in watched.modules() if module._forward_hooks] == []


def test_checkpointed_blocks_count_once() -> None:
    plain, checkpointed = Health(1), Health(1)
    fitted(plain)
    fitted(checkpointed, checkpoint=["blocks.*"])
    assert plain.layers == checkpointed.layers


def test_every_layer_has_a_number_for_each_epoch() -> None:
    health = Health(every=5)
    model = fitted(health, epochs=3, float_epochs=1)
    assert health.layers["fc"].keys() == {
        *("clipped", "activation_scale"),
        *("unchanged", "oscillating", "weight_scale"),
    }
    assert health.layers["blocks.0.act"].keys() == {"clipped", "activation_scale"}
    assert health.layers["blocks.1.conv"].keys() == {"unchanged", "oscillating", "weight_scale"}
    for layer, known in health.layers.items():
        for what, numbers in known.items():
            assert [type(number) for number in numbers] == [type(None), float, float]
            assert model.trainer.callback_metrics[f"health/{layer}/{what}"] == numbers[-1]
            assert what.endswith("_scale") or 0 <= numbers[-1] <= 1
    assert health.layers["fc"]["activation_scale"][-1] > 0


def test_a_float_network_is_refused_before_the_training() -> None:
    with pytest.raises(ValueError, match="Health needs a LightningModule with a quantized network, got a Cl"):
        fitted(Health(), quantization=Quantization(32, 32, 32, 32))


def test_each_layer_and_kind_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "qat"):
        fitted(Health(1), epochs=3, quantization=Quantization(rounding="zero"))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "qat.training.health"]
    assert line == (
        "health: up to 100 % of the weights keep their code all epoch in blocks.0.conv, blocks.1.conv, "
        "blocks.2.conv, blocks.3.conv, fc; try rounding ste: the gradient of rounding zero is zero"
    )


def test_too_few_updates_log_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "qat"):
        fitted(Health(2), quantization=Quantization(rounding="zero"))  # 3 updates
        fitted(Health(1), epochs=1, learning_rate=0.01)
    assert caplog.records == [] or [r for r in caplog.records if r.name.startswith("qat")] == []


def test_warnings_of_clipping_and_oscillation_name_a_remedy(caplog: pytest.LogCaptureFixture) -> None:
    health = Health()
    health._weights = {name: WeightStatistics(fixed(IntGrid(4)), lambda: torch.zeros(3)) for name in "ab"}
    with caplog.at_level(logging.WARNING, "qat"):
        health._warn({"a": {"clipped": 0.1, "oscillating": 0.2}, "b": {"clipped": 0.11, "oscillating": 0.21}})
        health._warn({"a": {"clipped": 0.3}, "b": {"clipped": 0.5}})
    assert [record.getMessage() for record in caplog.records] == [
        "health: up to 11 % of the activations are clipped in b; "
        "try activation_scale learned, or more activation_bits",
        "health: up to 21 % of the weights oscillate between codes in b; "
        "try a lower learning_rate, or frozen scales (freeze_epoch)",
        "health: up to 30 % of the activations are clipped in a; "
        "try activation_scale learned, or more activation_bits",
    ]


def test_codes_of_a_fine_grid_may_oscillate(caplog: pytest.LogCaptureFixture) -> None:
    health = Health()
    for bits in (4, 8):
        health._weights[f"{bits} bits"] = WeightStatistics(fixed(IntGrid(bits)), lambda: torch.zeros(3))
    with caplog.at_level(logging.WARNING, "qat"):
        health._warn({name: {"oscillating": 0.9} for name in health._weights})
    (record,) = caplog.records
    assert " in 4 bits; " in record.getMessage()


def test_every_is_a_number_of_batches() -> None:
    with pytest.raises(ValueError, match="every must be at least 1 batch, got 0"):
        Health(0)


def test_a_failed_step_leaves_no_hooks() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise FloatingPointError("nan")

    health = Health()
    torch.manual_seed(3)
    model = Classifier(options={"width": 4})
    model.training_loss = Failing()
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = Trainer(
        accelerator="cpu", enable_checkpointing=False, max_epochs=1, callbacks=[health], **quiet
    )
    with pytest.raises(TypeError, match="logits"):  # it takes no such argument
        trainer.fit(model, loader(), loader(8))
    assert [module for module in model.modules() if module._forward_hooks] == []


def test_warnings_can_be_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "qat"):
        Health(warns=False)._warn({"a": {"clipped": 0.9}})
        assert caplog.records == []
        Health()._warn({"a": {"clipped": 0.9}})
    assert len(caplog.records) == 1

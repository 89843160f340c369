"""Statistics and scales of a model whose weights have changed: as if its batches had been the first."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qat.layers import Quantization, quantize, remeasure
from qat.models import LeNet, SmallCNN
from qat.quantizers import Quantizer

BATCHES = [torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(i)) for i in range(3)]


def built(**options: Any) -> nn.Module:
    """A model whose weights are no longer those that its scales and statistics come from."""
    torch.manual_seed(0)
    model = quantize(SmallCNN(width=4, dropout=0.5), Quantization(**options), BATCHES[0])
    for batch in BATCHES:
        model(batch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.7)
    return model


def state(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def changed(model: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}


@pytest.mark.parametrize(
    "options", [{}, {"asymmetric": True}, {"power_of_two": True}, {"activation_observer": "mse"}], ids=str
)
def test_the_past_leaves_no_trace(options: dict[str, Any]) -> None:
    model = built(**options)
    torch.manual_seed(0)
    fresh = quantize(SmallCNN(width=4, dropout=0.5), Quantization(**options), torch.zeros(2, 1, 28, 28))
    fresh.load_state_dict(
        {k: v for k, v in model.state_dict().items() if k in dict(model.named_parameters())}, strict=False
    )
    with pytest.raises(AssertionError):
        assert_same(model, fresh)
    assert remeasure(model, BATCHES) is model
    remeasure(fresh, [(batch, "labels") for batch in BATCHES])  # tuples, as of a loader
    assert_same(model, fresh)


def assert_same(model: nn.Module, other: nn.Module) -> None:
    ours, theirs = model.state_dict(), other.state_dict()
    weights = [key for key in ours if "weight_quantizer" in key]  # measured on the weight, in each forward
    assert [k for k in ours if k not in weights and not torch.equal(ours[k], theirs[k])] == []


def test_batchnorm_takes_the_mean_and_scales_the_moving_average() -> None:
    conv = nn.Conv2d(1, 2, 1, bias=False)
    model = quantize(nn.Sequential(conv, nn.BatchNorm2d(2)), Quantization(32, 32, 32, 8), BATCHES[0])
    remeasure(model, BATCHES)
    largest = [batch.max() / 255 for batch in BATCHES]
    expected = 0.9 * (0.9 * largest[0] + 0.1 * largest[1]) + 0.1 * largest[2]
    torch.testing.assert_close(model[0].input_quantizer.scale.value, expected)
    means = torch.stack([batch.mean() for batch in BATCHES])
    torch.testing.assert_close(
        model[1].running_mean, means.mean() * conv.weight.flatten(), rtol=1e-3, atol=1e-4
    )


def test_nothing_else_changes() -> None:
    model = built(layers={"fc": {"activation_scale": "learned"}})
    frozen, disabled = [q for q in model.modules() if isinstance(q, Quantizer) and q.scale.is_averaged][:2]
    frozen.freeze()
    disabled.enabled = False
    model.train()
    next(part for part in model.modules() if isinstance(part, nn.BatchNorm2d)).eval()
    modes = [part.training for part in model.modules()]
    momenta = [part.momentum for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
    before, draws = state(model), torch.get_rng_state()
    remeasure(model, BATCHES)
    assert modes == [part.training for part in model.modules()]
    assert momenta == [part.momentum for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
    assert torch.equal(draws, torch.get_rng_state())  # dropout is off
    names = {part: name for name, part in model.named_modules()}
    moved = changed(model, before)
    assert not [k for k in moved if k.startswith((names[frozen] + ".", names[disabled] + "."))]
    assert not moved & dict(model.named_parameters()).keys()
    assert all("running" in key or "num_batches" in key or ".scale." in key for key in moved)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_after_an_error_modes_and_momenta_are_as_before() -> None:
    model = built().train()
    modes = [part.training for part in model.modules()]
    with pytest.raises(RuntimeError):
        remeasure(model, [BATCHES[0], torch.rand(4, 3, 28, 28)])
    assert modes == [part.training for part in model.modules()]
    assert {part.momentum for part in model.modules() if isinstance(part, nn.BatchNorm2d)} == {0.1}


def test_what_has_no_effect_is_refused_before_anything_changes() -> None:
    model = built()
    before = state(model)
    with pytest.raises(ValueError, match="batches must hold at least one batch, got none; a generator"):
        remeasure(model, iter(()))
    assert changed(model, before) == set()
    with pytest.raises(ValueError, match="the model has no BatchNorm and no observed scale of activations"):
        remeasure(LeNet(), BATCHES)
    copied = copy.deepcopy(quantize(LeNet(), Quantization(), BATCHES[0]))
    for part in copied.modules():
        if isinstance(part, Quantizer):
            part.freeze()
    with pytest.raises(ValueError, match="nothing to measure"):
        remeasure(copied, BATCHES)

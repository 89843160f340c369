"""The state of quantizers: what it says, what loading changes and refuses, and tools that go over it."""

import copy
import io
import pickle
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from qat.quantizers import activation_quantizer, weight_quantizer
from qat.quantizers.quantizer import read_extra_state

X = torch.linspace(-1, 2, 24).reshape(4, 3, 2, 1)


class Network(nn.Module):
    """Two quantizers: a weight's, and one of activations with the given options."""

    def __init__(self, bits: int = 4, **options: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(X.clone())
        self.of_weight = weight_quantizer(X, bits, axis=0)
        self.act = activation_quantizer(torch.zeros(1), bits, signed=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x * self.of_weight(self.weight))


def saved(model: nn.Module) -> dict[str, Tensor]:
    """The state, through a file as training writes it."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_the_state_says_what_it_means() -> None:
    model = Network(power_of_two=True)
    model.act.enabled = False
    model.act.freeze()
    assert read_extra_state(saved(model)["act._extra_state"]) == {
        "bits": 4,
        "low": -7,
        "high": 7,
        "scale": "PowerOfTwo(ObservedScale)",
        "enabled": False,
        "frozen": True,
    }


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 7, 8, 16])
@pytest.mark.parametrize("signed", [True, False])
def test_another_width_is_refused_by_the_name_of_the_layer(bits: int, signed: bool) -> None:
    low, high = weight_quantizer(X, bits, axis=0).grid.low, weight_quantizer(X, bits, axis=0).grid.high
    if not signed:
        low, high = 0, 2**bits - 1
    stored = nn.ModuleDict({"act": activation_quantizer(X, bits, signed=signed)}).state_dict()
    model = nn.ModuleDict({"act": activation_quantizer(X, 5, signed=True)})
    message = (
        rf"^act: the state to load has {bits} bits \({low}..{high}\), the model has 5 bits \(-15..15\); set"
    )
    with pytest.raises(ValueError, match=message):
        model.load_state_dict(stored)


@pytest.mark.parametrize(
    ("stored", "own"),
    [
        ({"scale": "learned"}, {}),
        ({}, {"scale": "learned"}),
        ({}, {"power_of_two": True}),
        ({"asymmetric": True}, {"signed": False}),
        ({"scale": "pact", "signed": False}, {"scale": "learned", "signed": False}),
    ],
)
def test_another_kind_of_scale_is_refused_by_name(stored: dict[str, object], own: dict[str, object]) -> None:
    theirs, ours = (activation_quantizer(X, 4, **{"signed": True, **options}) for options in (stored, own))
    kinds = re.escape(f"{theirs.scale.kind}, the model has a scale of the kind {ours.scale.kind}")
    with pytest.raises(ValueError, match=rf"^act: the state to load has a scale of the kind {kinds}; set"):
        nn.ModuleDict({"act": ours}).load_state_dict(nn.ModuleDict({"act": theirs}).state_dict())


def test_a_state_without_the_entry_is_incomplete() -> None:
    state = Network().state_dict()
    del state["act._extra_state"]
    with pytest.raises(RuntimeError, match=r"Missing key.*act\._extra_state"):
        Network().load_state_dict(state)
    Network().load_state_dict(state, strict=False)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_flags_are_loaded(enabled: bool, frozen: bool) -> None:
    model, other = Network(), Network()
    model.act.enabled = enabled
    other.act.enabled = not enabled
    (model if frozen else other).act.freeze()
    other.load_state_dict(saved(model), strict=True)
    assert (other.act.enabled, other.act.scale.frozen) == (enabled, frozen)
    assert other.of_weight.enabled
    assert not other.of_weight.scale.frozen


@pytest.mark.parametrize("assign", [True, False])
def test_loading_leaves_requires_grad_as_the_user_has_set_it(assign: bool) -> None:
    model, other = Network(scale="learned"), Network(scale="learned")
    other.act.scale.value.requires_grad_(False)
    other.load_state_dict(saved(model), assign=assign)
    assert not other.act.scale.value.requires_grad
    model.act.freeze()
    other.load_state_dict(saved(model), assign=assign)
    other.act.unfreeze()
    assert not other.act.scale.value.requires_grad
    third = Network(scale="learned")
    third.load_state_dict(saved(model), assign=assign)
    assert not third.act.scale.value.requires_grad  # frozen
    third.act.unfreeze()
    assert third.act.scale.value.requires_grad


def test_copies_pickles_and_whole_models_keep_flags(tmp_path: Path) -> None:
    model = Network(scale="learned")
    model.act.enabled = False
    model.act.freeze()
    torch.save(model, tmp_path / "model.pt")
    whole = torch.load(tmp_path / "model.pt", weights_only=False)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), whole):
        assert (twin.act.enabled, twin.act.scale.frozen) == (False, True)
        twin.act.unfreeze()
        assert twin.act.scale.value.requires_grad
        assert not model.act.scale.value.requires_grad
        with pytest.raises(ValueError, match="the state to load has 3 bits"):
            twin.load_state_dict(Network(3, scale="learned").state_dict())


@pytest.mark.parametrize("use_buffers", [True, False])
def test_averaged_models(use_buffers: bool) -> None:
    model = Network()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=use_buffers)
    scales = []
    for factor in (1.0, 3.0):
        model(factor * X)
        average.update_parameters(model)
        scales.append(model.act.scale.value.clone())
    own, averaged = model.act, average.module.act
    assert torch.equal(averaged.get_extra_state(), own.get_extra_state())
    expected = sum(scales) / 2 if use_buffers else scales[-1]
    torch.testing.assert_close(averaged.scale.value, expected)
    averaged.eval()(X)


def test_averaging_every_entry_of_the_state_changes_no_meaning() -> None:
    model, average = Network(), Network()
    meaning = average.act.get_extra_state()
    for entry, new in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
        entry.copy_(0.999 * entry + 0.001 * new)  # as EMA tools do that know nothing of the modules
    assert torch.equal(average.act.get_extra_state(), meaning)


def test_distributed_data_parallel(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        model = DistributedDataParallel(Network())
        before = saved(model.module)
        model(X).sum().backward()
        assert saved(model.module).keys() == before.keys()
        assert torch.equal(saved(model.module)["act._extra_state"], before["act._extra_state"])
    finally:
        torch.distributed.destroy_process_group()

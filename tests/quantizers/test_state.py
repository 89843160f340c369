"""The state of quantizers: what it says, what loading changes and refuses, and tools that go over it."""

import copy
import io
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from qat import Quantization, quantize
from qat.models import SmallCNN
from qat.quantizers import Quantizer, activation_quantizer, weight_quantizer
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


@pytest.mark.parametrize("damage", [lambda s: s // 2, lambda s: s[:-3], lambda s: s.float(), lambda s: 7])
def test_an_entry_that_cannot_be_read_is_refused(damage: Any) -> None:
    state = Network().state_dict()
    state["act._extra_state"] = damage(state["act._extra_state"])
    with pytest.raises(
        ValueError, match=r"^act: the state to load has an _extra_state that cannot be read; give"
    ):
        Network().load_state_dict(state)


CONFIGS = [
    {"weight_scale": "learned"},
    {"activation_scale": "learned"},
    {"activation_scale": "pact"},
    {"asymmetric": True, "input_signed": True},
    {"power_of_two": True},
    {"first_last_bits": 7},  # the first layer and the last
    {"layers": {"fc": {"weight_bits": 3}}},  # the last layer alone
]


@pytest.mark.parametrize("options", CONFIGS, ids=str)
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("assign", [True, False])
def test_a_state_of_another_quantization_changes_no_layer(
    options: dict[str, Any], strict: bool, assign: bool
) -> None:
    def make(**options: Any) -> nn.Module:
        return nn.ModuleDict(
            {"net": quantize(SmallCNN(width=4), Quantization(**options), torch.ones(2, 1, 28, 28))}
        )

    for stored, own in ((make(**options), make()), (make(), make(**options))):
        before = [(x.clone(), x.requires_grad) for x in (*own.parameters(), *own.buffers())]
        for model in (own, copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
            with pytest.raises(
                ValueError, match=r"^net\.\S+: the state to load has .*, the model has .*; set the"
            ):
                model.load_state_dict(stored.state_dict(), strict=strict, assign=assign)
            after = [(x, x.requires_grad) for x in (*model.parameters(), *model.buffers())]
            assert all(torch.equal(a, b) and r == s for (a, r), (b, s) in zip(before, after, strict=True))
        average = AveragedModel(own)
        with pytest.raises(ValueError, match=r"^module\.net\.\S+: the state to load has"):
            average.load_state_dict(AveragedModel(stored).state_dict())


def test_each_quantizer_has_flags_of_its_own() -> None:
    def make() -> nn.Module:
        return quantize(SmallCNN(width=4), Quantization(weight_scale="learned"), torch.ones(2, 1, 28, 28))

    model, other = make(), make()
    found = [part for part in model.modules() if isinstance(part, Quantizer)]
    for number, quantizer in enumerate(found):
        quantizer.enabled = number % 2 == 0
        quantizer.freeze() if number % 3 == 0 else None
    other.load_state_dict(saved(model))
    flags = [(q.enabled, q.scale.frozen) for q in other.modules() if isinstance(q, Quantizer)]
    assert flags == [(number % 2 == 0, number % 3 == 0) for number in range(len(found))]
    images = torch.linspace(0, 1, 1568).reshape(2, 1, 28, 28)
    assert torch.equal(model.eval()(images), other.eval()(images))


def test_loading_its_own_state_changes_no_requires_grad() -> None:
    model = quantize(SmallCNN(width=4), Quantization(4, 4, weight_scale="learned"), torch.ones(2, 1, 28, 28))
    for wanted in (False, True):
        model.requires_grad_(wanted)
        for _ in range(2):
            model.load_state_dict(model.state_dict())
            assert {p.requires_grad for p in model.parameters()} == {wanted}

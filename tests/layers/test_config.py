"""The configuration: what it refuses, and overrides by layer."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from qat.gradients import round_ste, round_zero
from qat.layers import Quantization, quantize

BITS = ["weight_bits", "activation_bits", "first_last_bits", "input_bits"]


@pytest.mark.parametrize("argument", BITS)
@pytest.mark.parametrize("bits", [0, 9, -1, 33])
def test_bits_out_of_range(argument: str, bits: int) -> None:
    with pytest.raises(
        ValueError, match=f"{argument} must be one of the integers 1, 2, .* 16, 32; got {bits}"
    ):
        Quantization(**{argument: bits})


@pytest.mark.parametrize("argument", BITS)
@pytest.mark.parametrize("bits", [1.5, "four", True, None])
def test_bits_that_are_no_integer(argument: str, bits: object) -> None:
    with pytest.raises(ValueError, match=f"{argument} must be one of the integers 1, .*; got {bits!r}"):
        Quantization(**{argument: bits})


@pytest.mark.parametrize("argument", ["per_channel", "input_signed", "power_of_two", "asymmetric"])
def test_flags(argument: str) -> None:
    with pytest.raises(ValueError, match=f"{argument} must be true or false; got 'yes'"):
        Quantization(**{argument: "yes"})


def test_rounding_by_name_or_as_a_function() -> None:
    assert Quantization().rounding_function is round_ste
    assert Quantization(rounding="zero").rounding_function is round_zero
    assert Quantization(rounding=torch.floor).rounding_function is torch.floor
    with pytest.raises(ValueError, match="unknown rounding 'stee'; nearest: ste"):
        Quantization(rounding="stee")


def test_first_match_wins_and_implies_the_ends() -> None:
    config = Quantization(layers={"a.1": {"weight_bits": 2}, "a.*": {"weight_bits": 3, "rounding": "zero"}})
    resolved = config.resolve(["a.0", "a.1", "b"], [])
    assert resolved.keys() == {"a.0", "a.1"}
    assert (resolved["a.1"].weight_bits, resolved["a.1"].first_last_bits) == (2, 2)
    assert resolved["a.1"].rounding == "ste"
    assert (resolved["a.0"].weight_bits, resolved["a.0"].rounding) == (3, "zero")
    assert resolved["a.0"].activation_bits == 4


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ({"a": {"weight_bit": 2}}, r"unknown key in layers\['a'\] 'weight_bit'; nearest: weight"),
        ({"a": {"weight_bits": 9}}, r"layers\['a'\]: weight_bits must be one of the .*; got 9"),
        ({"a": {"activation_bits": 1.5}}, r"layers\['a'\]: activation_bits must be one of the"),
        (
            {"a": {"weight_scale": "lerned"}},
            r"layers\['a'\]: unknown weight_scale 'lerned'; nearest: learned",
        ),
        ({"a": {"power_of_two": 1}}, r"layers\['a'\]: power_of_two must be true or false; got 1"),
        ({"a": {"input_signed": True}}, r"unknown key in layers\['a'\] 'input_signed'"),
        ({"a": 4}, r"layers\['a'\] must be a mapping like \{weight_bits: 8\}; got 4"),
        ({"a": {"rounding": "stee"}}, r"layers\['a'\]: unknown rounding 'stee'"),
    ],
)
def test_bad_overrides(layers: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Quantization(layers=layers)


def test_a_pattern_that_matches_no_layer() -> None:
    with pytest.raises(ValueError, match="layers pattern 'c' matches nothing; choose from: aaa, bbb"):
        Quantization(layers={"c": {"rounding": "ste"}}).resolve(["aaa"], ["bbb"])


def test_weight_bits_do_not_match_an_activation() -> None:
    config = Quantization(layers={"a": {"weight_bits": 2}})
    with pytest.raises(ValueError, match="layers pattern 'a' matches nothing; choose from: bbb"):
        config.resolve(["bbb"], ["a"])


@pytest.mark.parametrize(
    ("argument", "value", "nearest"),
    [
        ("weight_scale", "lerned", "nearest: learned"),
        ("weight_scale", "pact", "choose from: observed, learned, dorefa"),
        ("activation_scale", "pakt", "nearest: pact"),
        ("activation_scale", "dorefa", "choose from: observed, learned, pact"),
        ("weight_observer", "ema", "nearest: max"),
        ("activation_observer", "percentil", "nearest: percentile"),
        ("weight_scale", ["learned"], "nearest: learned"),
    ],
)
def test_scales_and_observers_by_name(argument: str, value: object, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"unknown {argument} .*; {nearest}"):
        Quantization(**{argument: value})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"weight_scale": "learned", "weight_observer": "mse"},
            "weight_observer must be 'max' where weight_scale is 'learned', .*; got 'mse'",
        ),
        (
            {"activation_scale": "pact", "activation_observer": "mse"},
            "activation_observer must be 'ema' where activation_scale is 'pact', .*; got 'mse'",
        ),
        (
            {"activation_scale": "learned", "asymmetric": True},
            "asymmetric needs activation_scale 'observed' and .* 'ema'; got 'learned' and 'ema'",
        ),
    ],
)
def test_choices_that_do_not_go_together(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Quantization(**arguments)


def test_options_of_weights_do_not_match_activations() -> None:
    for key, value in {"weight_scale": "learned", "weight_observer": "mse", "per_channel": False}.items():
        with pytest.raises(ValueError, match="layers pattern 'act' matches nothing"):
            Quantization(layers={"act": {key: value}}).resolve(["conv"], ["act"])
    for key, value in {"activation_scale": "pact", "power_of_two": True, "asymmetric": True}.items():
        assert "act" in Quantization(layers={"act": {key: value}}).resolve(["conv"], ["act"])


@pytest.mark.parametrize(
    "rounding", [len, print, math.floor, lambda x: None, lambda x: x.sum(), lambda x: x.int()]
)
def test_a_function_that_is_no_rounding(rounding: object) -> None:
    with pytest.raises(
        ValueError, match=r"rounding must return a tensor for a tensor, of its shape and dtype; .* returned "
    ):
        Quantization(rounding=rounding)


@pytest.mark.parametrize("layers", [None, [1], {3: {"weight_bits": 2}}])
def test_layers_that_are_no_mapping(layers: object) -> None:
    with pytest.raises(ValueError, match="layers must map globs to overrides"):
        Quantization(layers=layers)


def test_a_configuration_draws_no_random_numbers() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    Quantization(rounding="stochastic")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_pattern_that_comes_too_late_to_have_an_effect() -> None:
    layers = {"*": {"weight_bits": 3}, "fc": {"weight_bits": 2}}
    with pytest.raises(
        ValueError, match=r"layers\['fc'\] has no effect: .* match all of its layers: fc; put it"
    ):
        Quantization(layers=layers).resolve(["conv", "fc"], [])
    assert len(Quantization(layers=dict(reversed(layers.items()))).resolve(["conv", "fc"], [])) == 2


def test_the_deployable_preset_expands_into_options_of_quantizers() -> None:
    config = Quantization(deployable=True, weight_bits=2)
    assert config.expand_preset() == Quantization(2, power_of_two=True, weight_observer="mse")
    chosen = Quantization(deployable=True, weight_observer="percentile")
    assert chosen.expand_preset().weight_observer == "percentile"
    learned = Quantization(deployable=True, weight_scale="learned")
    assert learned.expand_preset() == Quantization(weight_scale="learned", power_of_two=True)


def test_an_override_is_applied_before_the_preset_is_expanded() -> None:
    config = Quantization(deployable=True, layers={"a": {"weight_scale": "learned"}})
    (own,) = config.resolve(["a", "b"], []).values()
    assert (own.weight_scale, own.weight_observer, own.power_of_two) == ("learned", "max", True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_levels": "odd"}, "unknown weight_levels 'odd'; choose from: midtread, midrise"),
        ({"weight_outside": "pass"}, "unknown weight_outside 'pass'; nearest: passed"),
        (
            {"activation_outside": None},
            "unknown activation_outside None; choose from: masked",
        ),
        (
            {"activation_outside": "passed", "activation_scale": "pact"},
            "activation_outside must be 'masked' with activation_scale pact, which defines",
        ),
        (
            {"activation_outside": "fading", "asymmetric": True},
            "activation_outside must be 'masked' with",
        ),
        (
            {"layers": {"a": {"weight_levels": "odd"}}},
            r"layers\['a'\]: unknown weight_levels 'odd'",
        ),
    ],
)
def test_levels_and_gradients_outside(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Quantization(**options)


def test_midrise_is_for_weights_of_two_to_four_bits() -> None:
    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5)))
    widths = {"1": 1, "2": 4, "3": 5}
    layers = {name: {"weight_bits": bits} for name, bits in widths.items()}
    config = Quantization(2, weight_levels="midrise", weight_observer="mean", layers=layers)
    model: Any = quantize(net, config, torch.rand(2, 8))
    assert [layer.weight_quantizer.grid.midrise for layer in model] == [False, True, True, False, False]
    outside = [layer.weight_quantizer.outside for layer in model]
    assert outside == ["masked", "passed", "passed", "masked", "masked"]


def test_sixteen_bits_have_no_mean() -> None:
    with pytest.raises(ValueError, match="observer must be another than mean with more than 8 bits, got 16"):
        quantize(nn.Linear(4, 4), Quantization(first_last_bits=16, weight_observer="mean"), torch.rand(2, 4))

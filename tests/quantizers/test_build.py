"""Quantizers from names."""

import pytest
import torch

from qat.gradients import round_zero
from qat.quantizers import ObservedScale, PowerOfTwo, activation_quantizer, weight_quantizer
from qat.quantizers.observers import OBSERVERS

WEIGHT = torch.linspace(-1, 2, 24).reshape(2, 3, 2, 2)


def test_the_scale_is_initialized_from_the_tensor() -> None:
    weight = weight_quantizer(WEIGHT, 4, axis=0, rounding=round_zero)
    assert weight.scale.value.flatten().tolist() == (WEIGHT.abs().amax((1, 2, 3)) / 7).tolist()
    assert weight.rounding is round_zero
    activation = activation_quantizer(WEIGHT, 4, signed=False)
    assert activation.scale.value.item() == (torch.tensor(2.0) / 15).item()
    assert (activation.grid.low, activation.grid.high, activation.scale.batches.item()) == (0, 15, 0)


@pytest.mark.parametrize("scale", ["observed", "learned", "dorefa"])
@pytest.mark.parametrize(
    ("axis", "shape"), [(None, ()), (0, (2, 1, 1, 1)), (1, (1, 3, 1, 1)), (-3, (1, 3, 1, 1))]
)
def test_shapes_are_final(scale: str, axis: int | None, shape: tuple[int, ...]) -> None:
    quantizer = weight_quantizer(WEIGHT, 4, axis=axis, scale=scale)
    assert quantizer.scale(WEIGHT).shape == shape
    assert quantizer(WEIGHT).shape == WEIGHT.shape


@pytest.mark.parametrize("scale", ["observed", "dorefa"])
@pytest.mark.parametrize("observer", ["max", "percentile", "mse"])
def test_one_bit_weights_take_the_mean(scale: str, observer: str) -> None:
    observer = observer if scale == "observed" else "max"
    quantizer = weight_quantizer(WEIGHT, 1, axis=0, scale=scale, observer=observer)
    assert isinstance(quantizer.scale, ObservedScale)
    assert quantizer.scale.observer is OBSERVERS["mean"]
    assert quantizer.outside == "passed"


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("observer", ["ema", "percentile", "mse"])
def test_one_bit_activations(signed: bool, observer: str) -> None:
    x = torch.linspace(-1 if signed else 0, 1, 101)
    quantizer = activation_quantizer(x, 1, signed=signed, observer=observer)
    quantizer(x)
    assert quantizer.codes(x).unique().tolist() == [-1 if signed else 0, 1]


def test_two_bits_are_ternary() -> None:
    quantizer = weight_quantizer(WEIGHT, 2, axis=None, observer="mse")
    quantizer(WEIGHT)
    assert quantizer.codes(WEIGHT).unique().tolist() == [-1, 0, 1]


def test_a_power_of_two_wraps_any_scale() -> None:
    assert isinstance(weight_quantizer(WEIGHT, 4, axis=0, power_of_two=True).scale, PowerOfTwo)
    assert isinstance(activation_quantizer(WEIGHT, 4, signed=True, power_of_two=True).scale, PowerOfTwo)


@pytest.mark.parametrize("axis", [4, -5])
def test_an_axis_out_of_range(axis: int) -> None:
    with pytest.raises(ValueError, match=f"axis must be -4 to 3 for a weight of 4 dim.* None; got {axis}"):
        weight_quantizer(WEIGHT, 4, axis=axis)


def test_wrong_choices() -> None:
    with pytest.raises(ValueError, match="unknown weight scale 'learnd'; nearest: learned"):
        weight_quantizer(WEIGHT, 4, axis=0, scale="learnd")
    with pytest.raises(ValueError, match="unknown weight observer 'ema'"):
        weight_quantizer(WEIGHT, 4, axis=0, observer="ema")
    with pytest.raises(ValueError, match="observer must be max with scale='learned', got 'mse'"):
        weight_quantizer(WEIGHT, 4, axis=0, scale="learned", observer="mse")
    with pytest.raises(ValueError, match="unknown activation scale 'dorefa'"):
        activation_quantizer(WEIGHT, 4, signed=True, scale="dorefa")
    with pytest.raises(ValueError, match="unknown activation observer 'max'"):
        activation_quantizer(WEIGHT, 4, signed=True, observer="max")
    with pytest.raises(ValueError, match="observer must be ema with scale='pact', got 'mse'"):
        activation_quantizer(WEIGHT, 4, signed=False, scale="pact", observer="mse")
    with pytest.raises(ValueError, match="clips at 0, but this activation may be negative"):
        activation_quantizer(WEIGHT, 4, signed=True, scale="pact")
    with pytest.raises(ValueError, match="asymmetric goes with scale='observed' and observer='ema'"):
        activation_quantizer(WEIGHT, 4, signed=True, asymmetric=True, observer="mse")
    with pytest.raises(ValueError, match="bits must be one of the integers"):
        weight_quantizer(WEIGHT, 9, axis=0)

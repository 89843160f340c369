"""The gradient beyond the outer codes of a grid, and the levels without a zero."""

from typing import Any

import pytest
import torch
from torch import Tensor

from qat.gradients import CLAMPS, round_ewgs, round_ste, round_zero
from qat.quantizers import (
    IntGrid,
    LearnedScale,
    ObservedScale,
    PowerOfTwo,
    Quantizer,
    activation_quantizer,
    weight_quantizer,
)
from qat.quantizers.observers import LEVEL_DISTANCES

GRIDS = [IntGrid(3), IntGrid(2, midrise=True), IntGrid(3, signed=False), IntGrid(1)]
X = torch.linspace(-6.3, 6.4, 57)
G = torch.linspace(-1, 2, 57)


def run(quantizer: Quantizer, x: Tensor = X) -> tuple[Tensor, Tensor]:
    """The value and the gradient of x, in eval mode, with the scale 1/2."""
    for tensor in (*quantizer.scale.parameters(), *quantizer.scale.buffers()):
        tensor.data.fill_(0.5)
    x = x.clone().requires_grad_()
    y = quantizer.eval()(x)
    (gradient,) = torch.autograd.grad(y, x, G, retain_graph=True)
    return y, gradient


def distance(grid: IntGrid, x: Tensor) -> Tensor:
    """From the outermost code, in codes."""
    v = x / 0.5
    return (v - v.clamp(grid.low, grid.high)).abs() / grid.step


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("scale", [LearnedScale, lambda high: ObservedScale(high, "ema")])
def test_what_passes_is_added_to_what_is_masked(grid: IntGrid, scale: Any) -> None:
    masked, passed, fading = (run(Quantizer(grid, scale(grid.high), round_ste, name)) for name in CLAMPS)
    assert torch.equal(masked[0], passed[0])
    assert torch.equal(masked[0], fading[0])
    assert torch.equal(passed[1], G)
    d = distance(grid, X)
    torch.testing.assert_close(fading[1], G * torch.exp(-d))  # exp in another precision
    assert torch.equal(masked[1] == 0, (d > 0.5) | (G == 0)) or scale is LearnedScale
    assert (masked[1] == 0).sum() > 10


@pytest.mark.parametrize("outside", CLAMPS)
@pytest.mark.parametrize("grid", [IntGrid(3), IntGrid(2, midrise=True)], ids=str)
def test_a_learned_scale_has_the_same_gradient(outside: Any, grid: IntGrid) -> None:
    gradients = []
    for how in (outside, "masked"):
        quantizer = Quantizer(grid, LearnedScale(grid.high), round_ste, how)
        y, _ = run(quantizer)
        y.backward(G)
        (value,) = quantizer.scale.parameters()
        gradients.append(value.grad)
    torch.testing.assert_close(*gradients)  # one sum instead of two


@pytest.mark.parametrize("outside", CLAMPS)
def test_the_factor_of_the_rounding_holds_outside_too(outside: Any) -> None:
    grid = IntGrid(3)
    assert not run(Quantizer(grid, ObservedScale(3, "ema"), round_zero, outside))[1].any()
    ewgs, ste = (
        run(Quantizer(grid, ObservedScale(3, "ema"), r, outside))[1] for r in (round_ewgs, round_ste)
    )
    far = X.abs() > 4  # clamped to a whole number, where ewgs has the factor 1
    assert torch.equal(ewgs[far], ste[far])


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("scale", [LearnedScale, lambda high: ObservedScale(high, "ema")])
def test_one_function_equals_the_composition(grid: IntGrid, scale: Any) -> None:
    one = run(Quantizer(grid, scale(grid.high), round_ste, "passed"))
    composed = run(Quantizer(grid, scale(grid.high), lambda x: round_ste(x), "passed"))
    assert all(torch.equal(a, b) for a, b in zip(one, composed, strict=True))


def test_after_a_relu_nothing_passes_below_zero() -> None:
    quantizer = Quantizer(IntGrid(3, signed=False), ObservedScale(7, "ema"), outside="passed")
    x = X.clone().requires_grad_()
    quantizer(x, relu=True).backward(G)
    assert x.grad is not None
    assert torch.equal(x.grad, torch.where(x > 0, G, 0.0))


@pytest.mark.parametrize(("levels", "distance"), LEVEL_DISTANCES.items())
def test_distances_have_the_least_squared_error_for_normal_numbers(levels: int, distance: float) -> None:
    x = torch.linspace(0, 8, 160_001, dtype=torch.float64)
    density = torch.exp(-x * x / 2)
    mean = (x * density).sum() / density.sum()

    def error(distance: float) -> Tensor:
        half = (levels - 1) / 2
        offset = half % 1
        codes = ((x / (distance * mean) - offset).round() + offset).clamp(-half, half)
        return ((codes * distance * mean - x).square() * density).sum()

    assert error(distance) <= min(error(distance * 1.004), error(distance / 1.004))


def test_defaults() -> None:
    weight = torch.randn(4, 3, 3, 3)
    assert weight_quantizer(weight, 4, axis=0).outside == "masked"
    midrise: Any = {"axis": 0, "levels": "midrise"}
    assert weight_quantizer(weight, 2, **midrise).outside == "passed"
    assert weight_quantizer(weight, 2, scale="learned", **midrise).outside == "masked"
    assert weight_quantizer(weight, 2, outside="masked", **midrise).outside == "masked"
    two = weight_quantizer(weight, 2, observer="mse", power_of_two=True, **midrise)
    assert isinstance(two.scale, PowerOfTwo)
    assert set(two.codes(weight).unique().tolist()) == {-3, -1, 1, 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outside": "pass"}, "unknown outside 'pass'; nearest: passed"),
        ({"outside": "passed", "scale": "pact"}, "outside must be 'masked' with scale='pact'"),
        ({"outside": "fading", "asymmetric": True}, "outside must be 'masked' with asymmetric"),
    ],
)
def test_gradients_that_a_scale_cannot_have(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        activation_quantizer(torch.rand(8), 4, signed=False, **options)

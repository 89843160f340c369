"""Observers: percentile, least squares and mean; the maximum is tested with the observed scale."""

import pytest
import torch

from qat.quantizers import IntGrid, ObservedScale, Quantizer
from qat.quantizers.observers import (
    SAMPLE,
    mse_magnitude,
    mse_power_of_two_magnitude,
    percentile_magnitude,
)


def test_percentile_leaves_one_in_a_thousand_above() -> None:
    x = torch.arange(1, 10_001.0)[torch.randperm(10_000)]
    assert percentile_magnitude(-x, None, 7).item() == 9990
    assert percentile_magnitude(x[:500], None, 7) == x[:500].max()


def test_percentile_by_channel() -> None:
    x = torch.stack([torch.arange(2000.0), -10 * torch.arange(2000.0)], dim=1)
    assert percentile_magnitude(x, 1, 7).tolist() == [[1997.0, 19970.0]]


@pytest.mark.parametrize("observer", ["percentile", "mse"])
def test_a_large_tensor_is_sampled_evenly_and_always_in_the_same_way(observer: str) -> None:
    x = torch.linspace(0, 1, 40 * SAMPLE)
    scale = ObservedScale(15, observer)
    assert scale.measure(x) == scale.measure(x)
    assert scale.measure(x).item() == pytest.approx(scale.measure(x[::50]).item(), rel=1e-3)


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_mse_has_less_error_than_the_maximum(bits: int, axis: int | None) -> None:
    torch.manual_seed(0)
    w = torch.randn(3, 2000)
    grid, shape = IntGrid(bits), () if axis is None else (3, 1)
    errors = [
        (Quantizer(grid, ObservedScale(grid.high, observer, shape, axis))(w) - w).square().mean(1)
        for observer in ("mse", "max")
    ]
    assert (errors[0] < errors[1]).all()


def test_mse_keeps_the_maximum_where_the_data_lie_on_its_grid() -> None:
    x = torch.arange(-7.0, 8) * 0.25
    assert mse_magnitude(x, None, 7).item() == 1.75


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_best_power_of_two_has_the_least_error_of_all(bits: int, axis: int | None) -> None:
    torch.manual_seed(0)
    w = torch.randn(3, 2000) * (1.0 if axis is None else torch.tensor([[1.0], [0.01], [70.0]]))
    grid, shape = IntGrid(bits), () if axis is None else (3, 1)
    scale = ObservedScale(grid.high, "mse_power_of_two", shape, axis)
    error = (Quantizer(grid, scale)(w) - w).square().mean(1)
    assert (torch.frexp(scale.value)[0] == 0.5).all()
    for shift in range(-4, 5):
        other = 2.0**shift * scale.value
        tried = (torch.round(w / other).clamp(grid.low, grid.high) * other - w).square().mean(1)
        assert error.sum() <= tried.sum() if axis is None else (error <= tried).all()


def test_the_best_power_of_two_clips_nothing_if_there_are_enough_codes() -> None:
    w = torch.linspace(-0.6, 0.6, 1001)
    assert mse_power_of_two_magnitude(w, None, 127).item() / 127 == 2.0**-7
    assert mse_power_of_two_magnitude(torch.zeros(3), None, 127).item() > 0


@pytest.mark.parametrize("axis", [None, 0])
def test_a_binary_weight_has_the_mean_magnitude_and_no_mask(axis: int | None) -> None:
    w = torch.tensor([[0.0, -0.5, 8.0, -1.5], [1.0, -1.0, 0.1, -0.1]], requires_grad=True)
    scale = ObservedScale(1, "mean", (2, 1) if axis == 0 else (), axis, step=2)
    quantizer = Quantizer(IntGrid(1), scale, outside="passed")
    y = quantizer(w)
    means = w.detach().abs().mean(1, keepdim=True) if axis == 0 else w.detach().abs().mean()
    assert torch.equal(y, means * torch.tensor([[1.0, -1, 1, -1], [1, -1, 1, -1]]))
    g = torch.randn(2, 4)
    y.backward(g)
    assert w.grad is not None
    assert torch.equal(w.grad, g)

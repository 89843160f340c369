"""What the contract leaves open: bounds of every kind, NaN, infinite gradients, what is kept."""

import pytest
import torch
from torch import Tensor

from qat.gradients import clamp

X = torch.tensor([-9.0, -8.0, -0.5, 7.0, 7.5])


def gradients(y: Tensor, *inputs: Tensor) -> list[list[float] | float]:
    g = torch.arange(1.0, y.numel() + 1).reshape(y.shape)
    return [part.tolist() for part in torch.autograd.grad(y, inputs, g)]


def test_ends_are_inside() -> None:
    x = X.clone().requires_grad_()
    y = clamp(x, -8, 7)
    assert y.tolist() == [-8, -8, -0.5, 7, 7]
    assert gradients(y, x) == [[0, 2, 3, 4, 0]]


def test_both_end_codes_of_a_grid_learn() -> None:
    x = torch.tensor([-20, -8.4, -8, -3.2, 7, 7.4, 7.6, 20], requires_grad=True)
    (got,) = torch.autograd.grad(clamp(torch.round(x.detach()) + (x - x.detach()), -8, 7).sum(), x)
    assert got.tolist() == [0, 1, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 5)])
def test_a_bound_gets_a_gradient_of_its_own_shape(shape: tuple[int, ...]) -> None:
    x = X.clone().requires_grad_()
    low, high = torch.full(shape, -8.0, requires_grad=True), torch.full(shape, 7.0, requires_grad=True)
    y = clamp(x, low, high)
    assert torch.equal(y, x.clamp(-8, 7).expand_as(y))
    parts = torch.autograd.grad(y, (x, low, high), torch.ones_like(y))
    rows = y.numel() // 5
    assert parts[0].tolist() == [0, rows, rows, rows, 0]
    assert [part.shape for part in parts[1:]] == [shape, shape]
    assert [part.sum().item() for part in parts[1:]] == [rows, rows]


def test_one_bound_may_be_a_number_and_the_other_learn_in_float32() -> None:
    x = X.to(torch.bfloat16).requires_grad_()
    high = torch.tensor(7.0, requires_grad=True)
    y = clamp(x, -8, high)
    assert y.dtype == torch.bfloat16
    (got,) = torch.autograd.grad(y.sum(), high)
    assert (got.item(), got.dtype) == (1, torch.float32)


def test_bounds_that_cross() -> None:
    x = X.clone().requires_grad_()
    low, high = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    y = clamp(x, low, high)
    assert torch.equal(y, x.clamp(low, high))
    assert gradients(y, x, low, high) == [[0] * 5, 0, 15]
    with pytest.raises(ValueError, match="low must be <= high, got 2 and 1; swap them"):
        clamp(x, 2, 1)


@pytest.mark.parametrize(
    "bounds", [(-1, 1), (torch.tensor(-1.0), torch.tensor(1.0))], ids=["float", "tensor"]
)
def test_nan_stays_nan_and_infinite_gradients_stay_outside(bounds: tuple[float, float]) -> None:
    x = torch.tensor([float("nan"), 2.0, 0.5, float("inf")], requires_grad=True)
    y = clamp(x, *bounds)
    assert y[0].isnan()
    assert y[1:].tolist() == [1, 0.5, 1]
    (got,) = torch.autograd.grad(y, x, torch.tensor([5.0, float("inf"), 5.0, 5.0]))
    assert got.tolist() == [0, 0, 5, 0]


def kept(*inputs: float | Tensor) -> list[tuple[torch.dtype, torch.Size]]:
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        clamp(*inputs)
    return [(t.dtype, t.shape) for t in saved]


def test_one_byte_an_element_is_kept_for_each_gradient_that_is_wanted() -> None:
    x, low, high = X.clone().requires_grad_(), torch.tensor(-8.0), torch.tensor(7.0, requires_grad=True)
    mask = (torch.bool, X.shape)
    assert kept(x, -8, 7) == [mask]
    assert kept(X, -8, 7) == []
    assert kept(X, low, high) == [mask]
    assert kept(x, low, high) == [mask, mask]

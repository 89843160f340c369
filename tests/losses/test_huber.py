"""Huber: value, both gradients and the second derivative equal torch's."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from qat.losses import HuberLoss, huber_loss

ERROR = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])


def test_worked_values() -> None:
    x = ERROR.clone().requires_grad_()
    loss = huber_loss(x, torch.zeros(7), reduction="none")
    loss.sum().backward()
    assert loss.tolist() == [2.5, 0.5, 0.125, 0, 0.125, 0.5, 2.5]
    assert x.grad is not None
    assert x.grad.tolist() == [-1, -1, -0.5, 0, 0.5, 1, 1]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("delta", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradients_equal_torch(reduction: str, delta: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    values: list[list[Tensor]] = []
    start = (3 * torch.randn(5, 8, dtype=dtype), torch.randn(5, 8, dtype=dtype))
    g = torch.randn(5, 8, dtype=dtype)
    for function in (huber_loss, lambda x, t, d, r: F.huber_loss(x, t, r, d)):
        x, t = (s.clone().requires_grad_() for s in start)
        loss = function(x, t, delta, reduction)
        loss.backward(g if reduction == "none" else g[0, 0])
        assert x.grad is not None
        assert t.grad is not None
        values.append([loss.detach(), x.grad, t.grad])
    # Same formulas in another order of multiplication: the last bit may differ.
    for ours, theirs in zip(*values, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=4 * torch.finfo(dtype).eps, atol=1e-7)


def test_gradcheck_and_gradgradcheck() -> None:
    x = torch.tensor([-3.0, -0.4, 0.2, 1.7], dtype=torch.float64, requires_grad=True)
    t = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, t: huber_loss(x, t, 0.9, "none"), (x, t))
    assert gradgradcheck(lambda x, t: huber_loss(x, t, 0.9, "none"), (x, t))


def test_second_derivative_is_one_inside_delta_else_zero() -> None:
    x = ERROR.clone().requires_grad_()
    (first,) = torch.autograd.grad(huber_loss(x, torch.zeros(7), reduction="sum"), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [0, 0, 1, 1, 1, 0, 0]


def test_frozen_inputs_get_no_gradient() -> None:
    t = torch.zeros(7, requires_grad=True)
    huber_loss(ERROR, t).backward()
    assert t.grad is not None
    assert torch.equal(t.grad, -ERROR.clamp(-1, 1) / 7)


@pytest.mark.parametrize("delta", [0, -1.0, float("nan")])
def test_delta_must_be_positive(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must be > 0, got"):
        huber_loss(ERROR, ERROR, delta)
    with pytest.raises(ValueError, match="delta must be > 0, got"):
        HuberLoss(delta)


def test_shapes_are_not_broadcast() -> None:
    with pytest.raises(ValueError, match=r"one shape, got \(4, 1\) and \(4,\)"):
        huber_loss(torch.zeros(4, 1), torch.zeros(4))


def test_unknown_reduction() -> None:
    with pytest.raises(ValueError, match="unknown reduction 'men'; nearest: mean"):
        huber_loss(ERROR, ERROR, reduction="men")


def test_the_class_is_the_function() -> None:
    module = HuberLoss(delta=0.5, reduction="sum")
    assert torch.equal(module(ERROR, torch.zeros(7)), huber_loss(ERROR, torch.zeros(7), 0.5, "sum"))
    assert repr(module) == "HuberLoss(delta=0.5, reduction='sum')"

"""Clamping: the gradient passes on both ends."""

import torch
from torch.autograd import gradcheck, gradgradcheck

from qat.gradients import clamp

X = torch.tensor([-9.0, -8.0, -0.5, 7.0, 7.5])


def test_ends_are_inside() -> None:
    x = X.clone().requires_grad_()
    y = clamp(x, -8, 7)
    y.backward(torch.arange(1.0, 6.0))
    assert y.tolist() == [-8, -8, -0.5, 7, 7]
    assert x.grad is not None
    assert x.grad.tolist() == [0, 2, 3, 4, 0]


def test_gradcheck_away_from_the_ends() -> None:
    x = torch.tensor([-9.1, -3.0, 2.2, 8.4], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: clamp(x, -8, 7), (x,))
    assert gradgradcheck(lambda x: clamp(x, -8, 7) ** 2, (x,))


def test_nan_stays_nan_with_gradient_zero() -> None:
    x = torch.tensor([float("nan")], requires_grad=True)
    y = clamp(x, -1, 1)
    y.sum().backward()
    assert y.isnan().all()
    assert x.grad is not None
    assert x.grad.item() == 0


def test_the_mask_alone_is_saved_one_byte_an_element() -> None:
    saved: list[torch.Tensor] = []
    x = X.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        clamp(x, -8, 7)
    assert [(t.dtype, t.shape) for t in saved] == [(torch.bool, X.shape)]


def test_nothing_is_saved_for_a_frozen_input() -> None:
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        clamp(X, -8, 7)
    assert saved == []

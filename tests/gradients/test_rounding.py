"""Every rounding: one forward, its own gradient."""

import pytest
import torch
from torch import Tensor

from qat.gradients import ROUNDINGS, round_ste, round_zero

TIES = torch.tensor([-2.5, -1.5, -0.5, 0.2, 0.5, 0.7, 1.4, 1.5, 2.5])


@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_forward_is_half_to_even_in_every_dtype(name: str, dtype: torch.dtype) -> None:
    y = ROUNDINGS[name](TIES.to(dtype))
    assert y.dtype == dtype
    assert y.tolist() == [-2, -2, 0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3, 4, 5)])
def test_shapes_and_memory_formats(name: str, shape: tuple[int, ...]) -> None:
    x = torch.full(shape, 1.3)
    x = (x.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else x).requires_grad_()
    y = ROUNDINGS[name](x)
    y.backward(torch.ones_like(y))
    assert y.shape == x.shape
    assert y.stride() == x.stride()
    assert x.grad is not None
    assert x.grad.shape == x.shape


def gradient(rounding: object, x: Tensor, g: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    rounding(x).backward(g)  # type: ignore[operator]
    assert x.grad is not None
    return x.grad


def test_round_zero_has_the_true_gradient() -> None:
    assert torch.equal(gradient(round_zero, TIES, torch.randn(9)), torch.zeros(9))


def test_round_ste_passes_the_gradient_unchanged() -> None:
    g = torch.randn(9)
    assert torch.equal(gradient(round_ste, TIES, g), g)


def test_round_ste_keeps_second_derivatives() -> None:
    # y = round(x)^2: under the straight-through rule y' = 2 round(x), y'' = 2.
    x = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad((round_ste(x) ** 2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert (first.item(), second.item()) == (2.0, 2.0)

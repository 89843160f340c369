"""No gradient becomes NaN by infinity: neither 0 times infinity, nor infinity minus infinity."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from qat.gradients import (
    ROUNDINGS,
    clamp,
    one_hot_argmax_ste,
    relu_soft,
    scale_gradient,
    sign_ste,
)

INF, NAN = float("inf"), float("nan")
X = torch.tensor([INF, -INF, 3.4e38, -3.4e38, 1e10, 0.25, -0.3])
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **ROUNDINGS,
    "sign": sign_ste,
    "relu_soft": relu_soft,
    "one_hot_argmax": one_hot_argmax_ste,
    "clamp": lambda x: clamp(x, -1, 1),
    "clamp between": lambda x: clamp(x, torch.tensor(-1.0), torch.tensor(1.0)),
    "scaled by 0": lambda x: scale_gradient(x, 0.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_gradient_at_infinity_is_that_of_large_numbers(name: str, dtype: torch.dtype) -> None:
    x = X.to(dtype).requires_grad_()
    (gradient,) = torch.autograd.grad(FUNCTIONS[name](x), x, torch.ones_like(x))
    assert gradient.isfinite().all()
    large = torch.tensor([1e4, -1e4, 1e4, -1e4], dtype=dtype).requires_grad_()
    (expected,) = torch.autograd.grad(FUNCTIONS[name](large), large, torch.ones_like(large))
    assert torch.equal(gradient[:4], expected)
    (masked,) = torch.autograd.grad(FUNCTIONS[name](x), x, torch.zeros_like(x))
    assert not masked.any()  # 0, and not NaN


@pytest.mark.parametrize("name", ["soft", "relu_soft", "clamp"])
def test_second_derivatives_are_finite_too(name: str) -> None:
    x = X.clone().requires_grad_()
    g = torch.ones_like(x, requires_grad=True)
    (first,) = torch.autograd.grad(FUNCTIONS[name](x), x, g, create_graph=True)
    for second in torch.autograd.grad(first.sum(), (x, g), allow_unused=True):
        assert second is None or second.isfinite().all()


@pytest.mark.parametrize("name", ["ewgs", "soft"])
def test_nan_stays_visible_in_the_gradient(name: str) -> None:
    x = torch.tensor([NAN, 0.3], requires_grad=True)
    (gradient,) = torch.autograd.grad(FUNCTIONS[name](x).sum(), x)
    assert gradient.isnan().tolist() == [True, False]


def test_an_infinite_gradient_times_a_factor_of_zero_is_zero() -> None:
    x = torch.zeros(2, requires_grad=True)
    (gradient,) = torch.autograd.grad(scale_gradient(x, 0.0), x, torch.tensor([INF, 1.0]))
    assert gradient.tolist() == [0, 0]

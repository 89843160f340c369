"""Log-sum-exp where exp overflows, underflows or has nothing to add."""

import pytest
import torch

from qat.gradients import logsumexp

INF = float("inf")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("row", "value", "gradient"),
    [
        ([1000.0, 1000.0], 1000 + 0.6931, [0.5, 0.5]),
        ([-1000.0, -1000.0], -1000 + 0.6931, [0.5, 0.5]),
        ([1000.0, -1000.0], 1000, [1, 0]),
        ([1000.0, -INF], 1000, [1, 0]),
        ([-INF, -INF], -INF, [0, 0]),
    ],
)
def test_extremes(row: list[float], value: float, gradient: list[float], dtype: torch.dtype) -> None:
    x = torch.tensor([row, [0.0, 0.0]], dtype=dtype, requires_grad=True)
    y = logsumexp(x)
    torch.testing.assert_close(y[0], torch.tensor(value, dtype=dtype))
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert first.tolist() == [gradient, [0.5, 0.5]]
    (second,) = torch.autograd.grad((first * torch.tensor([1.0, 0.0], dtype=dtype)).sum(), x)
    a, b = gradient
    torch.testing.assert_close(second[0], torch.tensor([a * b, -a * b], dtype=dtype))


def test_a_row_with_plus_infinity_has_a_value_and_no_gradient() -> None:
    x = torch.tensor([INF, 0.0], requires_grad=True)
    y = logsumexp(x)
    (got,) = torch.autograd.grad(y, x)
    assert y.item() == INF
    assert got.isnan().all()


def test_dimensions() -> None:
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    for dim in (0, 1, 2, -1, -3):
        for keepdim in (False, True):
            torch.testing.assert_close(logsumexp(x, dim, keepdim), torch.logsumexp(x, dim, keepdim))
    assert logsumexp(torch.tensor(2.0)).item() == 2

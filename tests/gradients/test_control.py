"""What the contract does not test: gradients that end, float16, limits of the parameters, refusals."""

import pytest
import torch

from qat.gradients import (
    clip_gradient_norm,
    clip_gradient_value,
    refuse_second_derivative,
    scale_gradient,
    stop_gradient,
)


def test_stopped_means_no_gradient_at_all() -> None:
    x = torch.ones(3, requires_grad=True)
    y = stop_gradient(x)
    assert not y.requires_grad
    assert y.data_ptr() == x.data_ptr()


def test_a_factor_of_zero_is_a_gradient_of_zeros() -> None:
    x = torch.ones(3, requires_grad=True)
    (got,) = torch.autograd.grad(scale_gradient(x, 0).sum(), x)
    assert got.tolist() == [0, 0, 0]


def test_norms_that_float16_cannot_hold() -> None:
    # 300 * sqrt(100,000) = 94,868 is beyond 65,504.
    x = torch.zeros(100_000, dtype=torch.float16, requires_grad=True)
    (got,) = torch.autograd.grad(clip_gradient_norm(x, 1000.0), x, torch.full_like(x, 300.0))
    assert got.dtype == torch.float16
    torch.testing.assert_close(got.float().norm().item(), 1000.0, rtol=1e-3, atol=0)


def test_a_zero_gradient_and_its_derivative_stay_zero() -> None:
    x = torch.ones(3, requires_grad=True)
    (first,) = torch.autograd.grad((0 * clip_gradient_norm(x, 1.0) ** 2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.tolist() == second.tolist() == [0, 0, 0]


@pytest.mark.parametrize("clip", [clip_gradient_norm, clip_gradient_value])
@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
def test_bad_limits(clip: object, limit: float) -> None:
    with pytest.raises(ValueError, match=rf"limit must be > 0, got {limit!r}; stop_gradient"):
        clip(torch.ones(1), limit)


def test_a_refusal_keeps_nothing_and_costs_nothing_without_a_graph() -> None:
    g, x = torch.ones(3), torch.ones(3, requires_grad=True)
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        refused = refuse_second_derivative(g, x, name="mine")
    assert saved == []
    assert torch.equal(refused, g)
    with pytest.raises(RuntimeError, match="mine has no second derivative: its gradient was differentiated"):
        refused.sum().backward()
    with torch.no_grad():
        assert refuse_second_derivative(g, x, name="mine") is g

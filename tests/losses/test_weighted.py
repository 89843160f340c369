"""Weighted sums: values, weights, and who is taught."""

import pytest
import torch
from torch import Tensor

from qat.losses import Term, WeightedLoss


def product(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum()


def test_sum_values_and_gradients() -> None:
    a, b = torch.tensor([2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)
    loss = WeightedLoss(
        {
            "both": Term(product, ("a", "b"), weight=10.0),
            "first": Term(product, ("a", "b"), weight=0.5, teaches=("a",)),
            "none": Term(product, ("b", "a"), weight=100.0, teaches=()),
            "off": Term(product, ("a", "a"), weight=0.0),
        }
    )
    total, values = loss(a=a, b=b)
    total.backward()
    assert total.item() == 6 * 110.5
    assert {name: value.item() for name, value in values.items()} == {
        "both": 6,
        "first": 6,
        "none": 6,
        "off": 4,
    }
    assert not any(value.requires_grad for value in values.values())
    assert a.grad is not None
    assert b.grad is not None
    assert (a.grad.item(), b.grad.item()) == (3 * 10.5, 2 * 10)


def test_refused() -> None:
    with pytest.raises(ValueError, match="weight must be finite, got inf"):
        Term(product, ("a",), weight=float("inf"))
    with pytest.raises(ValueError, match="weight must be finite, got nan"):
        Term(product, ("a",), weight=float("nan"))
    with pytest.raises(ValueError, match="inputs must name at least one"):
        Term(product, ())
    with pytest.raises(ValueError, match="unknown name in teaches 'logit'; nearest: logits"):
        Term(product, ("logits", "target"), teaches=("logit",))
    with pytest.raises(ValueError, match="terms must name at least one"):
        WeightedLoss({})
    with pytest.raises(ValueError, match="unknown input of a loss 'b'; choose from: a"):
        WeightedLoss({"x": Term(product, ("a", "b"))})(a=torch.zeros(1))

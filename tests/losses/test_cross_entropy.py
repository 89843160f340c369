"""Cross-entropy equals torch's, and stays finite where a naive one does not."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck

from qat.losses import cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_value_and_gradient_equal_torch(smoothing: float, reduction: str) -> None:
    torch.manual_seed(0)
    x = (5 * torch.randn(6, 4, dtype=torch.float64)).requires_grad_()
    target = torch.randint(4, (6,))
    ours = cross_entropy(x, target, smoothing, reduction)
    theirs = F.cross_entropy(x, target, label_smoothing=smoothing, reduction=reduction)
    torch.testing.assert_close(ours, theirs)  # another order of summation: the last bits may differ
    g = torch.randn_like(ours)
    for a, b in zip(torch.autograd.grad(ours, x, g), torch.autograd.grad(theirs, x, g), strict=True):
        torch.testing.assert_close(a, b)


def test_gradcheck_and_gradgradcheck() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 3, 1])
    assert gradcheck(lambda x: cross_entropy(x, target, 0.1), (x,))
    assert gradgradcheck(lambda x: cross_entropy(x, target, 0.1), (x,))


def test_large_logits() -> None:
    x = torch.tensor([[1000.0, 0.0], [-1000.0, 1000.0]], requires_grad=True)
    loss = cross_entropy(x, torch.tensor([0, 0]), reduction="none")
    loss.sum().backward()
    assert loss.tolist() == [0, 2000]
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 0], [-1, 1]]


def test_an_impossible_class() -> None:
    x = torch.tensor([[0.0, -torch.inf]], requires_grad=True)
    cross_entropy(x, torch.tensor([0])).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("logits", "target", "kwargs", "message"),
    [
        ((2, 3), torch.zeros(2, 3), {}, r"logits \(N, C\) and target \(N,\), got \(2, 3\) and \(2, 3\)"),
        ((2,), torch.zeros(2), {}, "needs logits"),
        ((2, 3), torch.zeros(2, dtype=torch.int64), {"label_smoothing": 1.0}, "must be in"),
        ((2, 3), torch.zeros(2, dtype=torch.int64), {"reduction": "men"}, "nearest: mean"),
    ],
)
def test_refused(logits: tuple[int, ...], target: torch.Tensor, kwargs: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cross_entropy(torch.zeros(logits), target, **kwargs)

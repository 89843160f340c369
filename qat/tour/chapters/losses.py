"""Losses and their gradients."""

import torch
from torch import Tensor

from qat.losses import Term, WeightedLoss, huber_loss
from qat.tour.experiment import Measured
from qat.tour.trace import differentiate, leaf, trace


def huber() -> Measured:
    def loss(x: Tensor) -> Tensor:
        return huber_loss(x, torch.zeros_like(x), reduction="none")

    return differentiate(loss, x=leaf(-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0))


def _weighted(teaches: tuple[str, ...] | None, differs: str) -> Measured:
    """The loss `1 x^2 + 0.1 (3 x)` at 2; `teaches` says whether its second term has a gradient."""
    loss = WeightedLoss(
        {
            "main": Term(lambda x: x**2, ("x",), weight=1.0),
            "extra": Term(lambda x: 3 * x, ("x",), weight=0.1, teaches=teaches),
        }
    )
    x = torch.tensor(2.0, requires_grad=True)
    total, _ = loss(x=x)
    graph = trace(total, check=lambda x: x**2 + 0.3 * x, differs=differs, x=x)
    return {"loss": total, "gradient": x.grad}, [graph]


def weighted() -> Measured:
    return _weighted(None, "")


def stopped() -> Measured:
    return _weighted((), "On purpose: the second loss depends on x, but does not change it.")

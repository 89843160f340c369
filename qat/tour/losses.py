"""Chapter 8: losses whose gradients are chosen."""

import torch

from qat.losses import Term, WeightedLoss, huber_loss
from qat.tour.experiment import Chapter, Outcome, experiment
from qat.tour.trace import trace


@experiment(
    "The gradients of the Huber loss",
    why="Quadratic up to delta = 1, linear beyond: an outlier pulls with 1 at most.",
    expected={
        "loss": [2.5, 0.5, 0.125, 0.0, 0.125, 0.5, 2.5],
        "gradient": [-1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0],
    },
)
def huber() -> Outcome:
    x = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0], requires_grad=True)
    target = torch.zeros(7)
    y = huber_loss(x, target, reduction="none")
    graph = trace(y.sum(), check=lambda x: huber_loss(x, target, reduction="sum"), x=x, y=y)
    return Outcome({"loss": y, "gradient": x.grad}, (graph,))


def _weighted(teaches: tuple[str, ...] | None, differs: str) -> Outcome:
    """The loss `1 x^2 + 0.1 (3 x)` at 2; `teaches` says whether its second term moves x."""
    loss = WeightedLoss(
        {
            "main": Term(lambda x: x**2, ("x",), weight=1.0),
            "extra": Term(lambda x: 3 * x, ("x",), weight=0.1, teaches=teaches),
        }
    )
    x = torch.tensor(2.0, requires_grad=True)
    total, _ = loss(x=x)
    graph = trace(total, check=lambda x: x**2 + 0.3 * x, differs=differs, x=x)
    return Outcome({"loss": total, "gradient": x.grad}, (graph,))


@experiment(
    "Weighted losses share a tensor by their weights",
    why="The gradient of x^2 + 0.1 (3 x) at 2 is the weighted sum of theirs: 1 x 4 + 0.1 x 3.",
    expected={"loss": 4.6, "gradient": 4.3},
)
def weighted() -> Outcome:
    return _weighted(None, "")


@experiment(
    "... and a stopped path does not learn",
    why="The second loss sees x as a constant (stop_gradient): forward as before, backward 1 x 4 alone.",
    expected={"loss": 4.6, "gradient": 4.0},
)
def stopped() -> Outcome:
    return _weighted((), "On purpose: the second loss depends on x, but may not move it.")


CHAPTER = Chapter("Losses", (huber, weighted, stopped))

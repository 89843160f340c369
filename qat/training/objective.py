"""What a run minimises: the task's loss, and where there is a teacher, the distance to it."""

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor

from qat.losses import DistillationName, Term, WeightedLoss, cross_entropy, distillation_loss, huber_loss
from qat.names import unknown_name

LossName = Literal["huber", "cross_entropy"]


def one_hot_huber(logits: Tensor, labels: Tensor) -> Tensor:
    """The Huber loss of the logits `(N, C)` against the one-hot labels `(N,)`; mean over N and C."""
    return huber_loss(logits, F.one_hot(labels, logits.shape[1]).to(logits.dtype))


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "huber": one_hot_huber,
    "cross_entropy": cross_entropy,
}


def objective(
    loss: LossName, distillation: DistillationName, distillation_weight: float, taught: bool
) -> WeightedLoss:
    """The terms of a training step: `task` of (logits, labels), `distillation` of (logits, teacher).

    Args:
        loss: a name of `LOSSES`.
        distillation: `kl` or `huber`.
        distillation_weight: factor of the second term, finite and >= 0.
        taught: whether there is a teacher; without one the second term is left out.

    Raises:
        ValueError: a name is unknown or the weight out of range.
    """
    if loss not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    if distillation not in get_args(DistillationName):
        raise unknown_name("distillation", distillation, get_args(DistillationName))
    if not 0 <= distillation_weight < float("inf"):
        raise ValueError(
            f"distillation_weight must be >= 0 and finite, got {distillation_weight}; "
            "1 counts as much as the task"
        )
    terms = {"task": Term(LOSSES[loss], ("logits", "labels"))}
    if taught:
        distance = partial(distillation_loss, kind=distillation)
        inputs = ("logits", "teacher")
        terms["distillation"] = Term(distance, inputs, distillation_weight, teaches=("logits",))
    return WeightedLoss(terms)

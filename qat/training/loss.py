"""The training loss: the loss of the task, plus the distance to a teacher if there is one."""

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


Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {"huber": one_hot_huber, "cross_entropy": cross_entropy}


def training_loss(
    loss: LossName, distillation: DistillationName, distillation_weight: float, has_teacher: bool
) -> WeightedLoss:
    """The loss of a training step, with the terms `task(logits, labels)` and `distillation(logits, teacher)`.

    Without a teacher there is no second term; `distillation_weight` is its factor, finite and >= 0.
    """
    if loss not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    if distillation not in get_args(DistillationName):
        raise unknown_name("distillation", distillation, get_args(DistillationName))
    if not 0 <= distillation_weight < float("inf"):
        rule = "distillation_weight must be >= 0 and finite"
        raise ValueError(f"{rule}, got {distillation_weight}; 1 counts as much as the task")
    terms = {"task": Term(LOSSES[loss], ("logits", "labels"))}
    if has_teacher:
        distance = partial(distillation_loss, kind=distillation)
        terms["distillation"] = Term(distance, ("logits", "teacher"), distillation_weight, ("logits",))
    return WeightedLoss(terms)

"""Losses: the Huber loss, cross-entropy, distillation and weighted sums."""

from qat.losses.cross_entropy import cross_entropy
from qat.losses.distillation import DistillationName, distillation_loss
from qat.losses.huber import HuberLoss, huber_loss
from qat.losses.weighted import Term, WeightedLoss

__all__ = [
    "DistillationName",
    "HuberLoss",
    "Term",
    "WeightedLoss",
    "cross_entropy",
    "distillation_loss",
    "huber_loss",
]

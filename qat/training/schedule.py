"""The learning rate over the steps of a run, and the learning rate and weight decay of each parameter."""

import math
from typing import Any

from lightning import Trainer
from torch import nn

from qat.layers import scale_parameters
from qat.layers.consumers import BATCH_NORMS
from qat.layers.trace import CONV_AND_LINEAR

WARM_UP = 0.25


def planned_steps(trainer: Trainer) -> float:
    """The optimizer steps of a run's schedule: those of `max_epochs`, else of `max_steps`; or infinity.

    Where both are given, `max_steps` interrupts the run as `max_time` does, and the schedule is that of a run
    that goes on.
    """
    steps = trainer.estimated_stepping_batches  # sets up the loaders
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    if epochs is None or epochs < 1 or math.isinf(batches):
        return steps
    return math.ceil(batches / trainer.accumulate_grad_batches) * epochs


def one_cycle(step: int, total: float) -> float:
    """Factor of the learning rate: a linear rise over the first quarter of the steps, then a cosine fall.

    The factor depends on the step alone, so a resumed run is on the same curve, and on a longer one if it has
    more epochs. (torch's `OneCycleLR` stores the number of steps and refuses a longer run.)

    Args:
        step: optimizer steps done so far, >= 0.
        total: optimizer steps of the whole run; infinity keeps the rate constant.

    Source: Smith & Topin 2017, "Super-Convergence", section 3 (without its momentum cycle).
    """
    if math.isinf(total):
        return 1.0
    peak = math.floor(WARM_UP * total)
    if step <= peak:
        return (step + 1) / (peak + 1)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, (step - peak) / (total - peak))))


def cosine_rise(step: int, first: float, total: float) -> float:
    """A share that rises by half a cosine from 0 at step `first` to 1 at step `total`; 0 before `first`.

    Where `total` is infinity it is 1 from `first` on.
    """
    if step < first:
        return 0.0
    done = 1.0 if math.isinf(total) else (step - first) / max(total - first, 1)
    return 0.5 * (1.0 - math.cos(math.pi * min(1.0, done)))


def parameter_groups(
    model: nn.Module,
    learning_rate: float,
    weight_decay: float = 0.0,
    scale_learning_rate: float = 1.0,
    batchnorm_bias_rate: float = 1.0,
) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer: weights decay; biases, BatchNorm and learned scales do not.

    The rate of the scales is `scale_learning_rate * learning_rate`, that of the biases of BatchNorm
    `batchnorm_bias_rate * learning_rate`. A group without parameters is left out.
    """
    scales = set(scale_parameters(model))
    weights = {module.weight for module in model.modules() if isinstance(module, CONV_AND_LINEAR)}
    norms = [module for module in model.modules() if isinstance(module, BATCH_NORMS) and module.affine]
    biases = {norm.bias for norm in norms} if batchnorm_bias_rate != 1 else set()
    kinds: tuple[tuple[Any, float, float], ...] = (
        (weights, learning_rate, weight_decay),
        (set(model.parameters()) - weights - scales - biases, learning_rate, 0.0),
        (biases, learning_rate * batchnorm_bias_rate, 0.0),
        (scales, learning_rate * scale_learning_rate, 0.0),
    )
    groups = [([p for p in model.parameters() if p in own], rate, decay) for own, rate, decay in kinds]
    return [{"params": params, "lr": rate, "weight_decay": decay} for params, rate, decay in groups if params]

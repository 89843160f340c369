"""How the learning rate and the weight decay are spread over steps and parameters."""

import math
from typing import Any

from torch import nn

WARM_UP = 0.25


def one_cycle(step: int, total: float) -> float:
    """Factor of the learning rate: up in a line over the first quarter of all steps, down along a cosine.

    A pure function of the step, so a resumed run is on the same curve, and on a longer one if it has more
    epochs (torch's `OneCycleLR` stores the number of steps and refuses that).

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


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Groups for an optimizer: weights decay; biases, BatchNorm and learned scales do not.

    A scale of shape `(O, 1, 1, 1)` has as many axes as a weight, so the name `weight` is asked for too.
    """
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        matrix = name.rpartition(".")[2] == "weight" and parameter.dim() > 1
        (decayed if matrix else others).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]

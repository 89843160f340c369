"""How the learning rate and the weight decay are spread over steps and parameters."""

import math
from typing import Any

from torch import nn

from qat.quantizers import Scale

WARM_UP = 0.25
DECAYED = (nn.modules.conv._ConvNd, nn.Linear)


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


def parameter_groups(
    model: nn.Module, learning_rate: float, weight_decay: float = 0.0, scale_learning_rate: float = 1.0
) -> list[dict[str, Any]]:
    """Groups for an optimizer: weights decay; biases, BatchNorm and learned scales do not.

    Which is which the modules say: weights are those of convolution and linear layers, scales the parameters
    of a quantizer's scale. A group without parameters is left out.

    Args:
        model: its parameters are grouped, each once.
        learning_rate: of all but the scales, > 0.
        weight_decay: of the weights, >= 0.
        scale_learning_rate: that of the scales as a multiple of the others', >= 0.
    """
    scales = {p for module in model.modules() if isinstance(module, Scale) for p in module.parameters()}
    weights = {module.weight for module in model.modules() if isinstance(module, DECAYED)}
    groups = [
        ([p for p in model.parameters() if p in weights], learning_rate, weight_decay),
        ([p for p in model.parameters() if p not in weights | scales], learning_rate, 0.0),
        ([p for p in model.parameters() if p in scales], learning_rate * scale_learning_rate, 0.0),
    ]
    return [{"params": params, "lr": rate, "weight_decay": decay} for params, rate, decay in groups if params]

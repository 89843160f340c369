"""A term of the loss that keeps weights near their codes."""

import math

import torch
from lightning import Trainer
from torch import Tensor, nn

from qat.layers import QuantLayer
from qat.quantizers import Quantizer, follows_formula
from qat.training.schedule import planned_steps


def dampening_loss(model: nn.Module) -> Tensor:
    """The squared distance of all weights from the values that their quantizers give, without their outliers.

    Forward: the sum over quantized weights of `(clamp(w, low s, high s) - q)^2` with q the quantized weight.
    Gradient of w: `2 g (w - q)` where w is not clamped, else 0; q and the scale s get none. Weights of a
    deployable layer are those into which BatchNorm is folded. No state changes. Quantizers that are not
    enabled, and user-defined ones with a forward of their own, count nothing.

    Source: Nagel et al. 2022, "Overcoming oscillations in quantization-aware training", section 4.2.
    """
    total = torch.zeros((), device=next(model.parameters()).device)
    for module in model.modules():
        if isinstance(module, QuantLayer):
            quantizer = module.weight_quantizer
            if follows_formula(quantizer) and quantizer.enabled:
                total = total + _distance(quantizer, module.effective_weight)
    return total


def _distance(quantizer: Quantizer, weight: Tensor) -> Tensor:
    with torch.no_grad():
        scale, grid = quantizer.scale(weight), quantizer.grid
        target = quantizer.codes(weight) * scale
    clamped = torch.minimum(torch.maximum(weight, grid.low * scale), grid.high * scale)
    return (clamped.float() - target).square().sum()


def dampening_share(trainer: Trainer, first_epoch: int) -> float:
    """The share of the term in this step: a cosine from 0 at the first quantized epoch to 1 at the end.

    A run without a planned end has none. Source: as above; first, weights shall find their codes.
    """
    total, epochs = planned_steps(trainer), trainer.max_epochs
    if math.isinf(total) or not epochs or epochs < 1:
        return 0.0
    first = total * first_epoch / epochs
    share = (trainer.global_step - first) / max(total - first, 1)
    return 0.5 * (1 - math.cos(math.pi * min(1.0, max(0.0, share))))

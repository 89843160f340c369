"""A term of the loss that keeps weights near their codes."""

import math

import torch
from lightning import Trainer
from torch import Tensor, nn

from qat.layers import QuantLayer
from qat.module_state import preserve_modes
from qat.quantizers import Quantizer, follows_formula
from qat.training.schedule import cosine_rise, planned_steps


def dampening_loss(model: nn.Module) -> Tensor:
    """The squared distance of all weights from the values that their quantizers give, without their outliers.

    Forward: the sum over quantized weights of `(clamp(w, low s, high s) - q)^2` with q the quantized weight.
    Gradient of w: `2 g (w - q)` where w is not clamped, else 0; q and the scale s get none. Weights of a
    deployable layer are those into which BatchNorm is folded, weights with a DoReFa scale those after its
    tanh. An observed scale is that of the weight as it is now. No state changes. Quantizers that are not
    enabled, and user-defined ones with a forward of their own, count nothing.

    Add it to the loss of any LightningModule, with a factor that rises from 0: first, the weights shall find
    their codes. Shape: `()`, float32 or wider.

    Raises:
        ValueError: the model has no weight with a quantizer.

    Source: Nagel et al. 2022, "Overcoming oscillations in quantization-aware training", section 4.2.
    """
    weights = quantized_weights(model)
    terms = [
        _distance(quantizer, layer.effective_weight) for quantizer, layer in weights if quantizer.enabled
    ]
    return torch.stack(terms).sum() if terms else torch.zeros((), device=weights[0][1].weight.device)


def quantized_weights(model: nn.Module) -> list[tuple[Quantizer, QuantLayer]]:
    """The quantizers of weights that `dampening_loss` counts, if enabled; raises ValueError without any."""
    layers = [part for part in model.modules() if isinstance(part, QuantLayer)]
    found = [(q, layer) for layer in layers if follows_formula(q := layer.weight_quantizer)]
    if not found:
        rule = "dampening needs a network with quantized weights"
        raise ValueError(f"{rule}, got none in {type(model).__name__}; quantize it, or leave dampening out")
    return found


def _distance(quantizer: Quantizer, weight: Tensor) -> Tensor:
    low, high = quantizer.grid.low, quantizer.grid.high
    with preserve_modes(quantizer):
        quantizer.eval()  # so that the values and the ends of the grid have the same scale, measured now
        with torch.no_grad():
            scale = quantizer.scale(weight)
            zero_point = quantizer.scale.zero_point(scale)
            zero = 0 if zero_point is None else zero_point
            target = (quantizer.codes(weight) - zero) * scale
        x = quantizer.scale.transform(weight.to(target.dtype), scale)
    clamped = torch.minimum(torch.maximum(x, (low - zero) * scale), (high - zero) * scale)
    return (clamped - target).square().sum()


def dampening_share(trainer: Trainer, first_epoch: int) -> float:
    """The share of the term in this step: a cosine from 0 at the first quantized epoch to 1 at the end.

    In a run without a planned end, whose learning rate is constant too, it is 1 from that epoch on.
    """
    batches = trainer.num_training_batches / trainer.accumulate_grad_batches if first_epoch else 0
    first = math.inf if math.isinf(batches) else math.ceil(batches) * first_epoch
    return cosine_rise(trainer.global_step, first, planned_steps(trainer))

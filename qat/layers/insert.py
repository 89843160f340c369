"""Build the quantizers of a spec, and put them into a module."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from qat.layers.activation import QUANT_ACTIVATIONS
from qat.layers.config import FLOAT
from qat.layers.layer import QuantConv1d, QuantConv2d, QuantConvTranspose2d, QuantLayer, QuantLinear
from qat.layers.specs import QuantSpec
from qat.quantizers import Quantizer, activation_quantizer, weight_quantizer

QUANT_LAYERS: dict[type[nn.Module], type[QuantLayer]] = {
    nn.Conv1d: QuantConv1d,
    nn.Conv2d: QuantConv2d,
    nn.ConvTranspose2d: QuantConvTranspose2d,
    nn.Linear: QuantLinear,
}


# The class of a module changes, not the object: tied weights, hooks and other references to it stay right.
def quantize_activation(module: nn.Module, quantizer: nn.Module) -> None:
    """Give an activation module a quantizer for its output."""
    if isinstance(quantizer, Quantizer):
        module.__class__ = QUANT_ACTIVATIONS[type(module)]
        module.quantizer = quantizer.train(module.training)


def quantize_layer(module: nn.Module, for_weight: nn.Module, for_input: nn.Module) -> None:
    """Give a layer quantizers for its weight and its input."""
    if isinstance(for_weight, Quantizer) or isinstance(for_input, Quantizer):
        module.__class__ = QUANT_LAYERS[type(module)]
        module.weight_quantizer = for_weight.train(module.training)
        module.input_quantizer = for_input.train(module.training)


def quantizer_of_weight(spec: QuantSpec, module: Any) -> nn.Module:
    """The quantizer of a layer's weight, started from that weight."""
    if spec.weight_bits == FLOAT:
        return nn.Identity()
    # The quantized form of the layer knows in which form its weight is quantized, and along which axis.
    form = copy.copy(module)
    form.__class__ = QUANT_LAYERS[type(module)]
    weight = form.effective_weight
    with weight.device:
        return weight_quantizer(
            weight,
            spec.weight_bits,
            axis=form.channel_axis if spec.config.per_channel else None,
            scale=spec.config.weight_scale,
            observer=spec.config.weight_observer,
            power_of_two=spec.config.power_of_two,
            rounding=spec.config.rounding_function,
        )


def quantizer_of_activation(spec: QuantSpec, samples: list[Tensor]) -> nn.Module:
    """The quantizer of an activation or of a layer's input, started from samples of it."""
    if spec.input_bits == FLOAT:
        return nn.Identity()
    # A layer that ran several times starts from the inputs of all calls.
    sample = samples[0] if len(samples) == 1 else torch.cat([sample.flatten() for sample in samples])
    scale = spec.config.activation_scale
    with sample.device:
        quantizer = activation_quantizer(
            sample,
            spec.input_bits,
            signed=spec.signed,
            scale="learned" if scale == "pact" and spec.signed else scale,
            observer=spec.config.activation_observer,
            power_of_two=spec.config.power_of_two,
            asymmetric=spec.config.asymmetric and spec.signed,
            rounding=spec.config.rounding_function,
        )
    if not sample.any():
        quantizer.scale.unset = spec.name  # zeros say nothing of the scale
    return quantizer

"""Put the quantizers of a spec into a module."""

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
def quantize_activation(module: nn.Module, spec: QuantSpec, samples: list[Tensor]) -> None:
    """Give an activation module a quantizer for its output, started from samples of the output."""
    quantizer = _activation_quantizer(spec, samples)
    if isinstance(quantizer, Quantizer):
        module.__class__ = QUANT_ACTIVATIONS[type(module)]
        module.quantizer = quantizer.train(module.training)


def quantize_layer(module: nn.Module, spec: QuantSpec, samples: list[Tensor]) -> None:
    """Give a layer quantizers for its weight and its input, started from the weight and from the samples."""
    kind = QUANT_LAYERS[type(module)]
    for_weight = _weight_quantizer(spec, module, kind.channel_axis)
    for_input = _activation_quantizer(spec, samples)
    if isinstance(for_weight, Quantizer) or isinstance(for_input, Quantizer):
        module.__class__ = kind
        module.weight_quantizer = for_weight.train(module.training)
        module.input_quantizer = for_input.train(module.training)


def _weight_quantizer(spec: QuantSpec, module: Any, channel_axis: int) -> nn.Module:
    if spec.weight_bits == FLOAT:
        return nn.Identity()
    return weight_quantizer(
        module.weight,
        spec.weight_bits,
        axis=channel_axis if spec.config.per_channel else None,
        scale=spec.config.weight_scale,
        observer=spec.config.weight_observer,
        power_of_two=spec.config.power_of_two,
        rounding=spec.config.rounding_function,
    )


def _activation_quantizer(spec: QuantSpec, samples: list[Tensor]) -> nn.Module:
    if spec.input_bits == FLOAT:
        return nn.Identity()
    scale = spec.config.activation_scale
    return activation_quantizer(
        # A layer that ran several times starts from the inputs of all calls.
        samples[0] if len(samples) == 1 else torch.cat([sample.flatten() for sample in samples]),
        spec.input_bits,
        signed=spec.signed,
        scale="learned" if scale == "pact" and spec.signed else scale,
        observer=spec.config.activation_observer,
        power_of_two=spec.config.power_of_two,
        asymmetric=spec.config.asymmetric and spec.signed,
        rounding=spec.config.rounding_function,
    )

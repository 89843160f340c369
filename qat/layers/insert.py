"""Build the quantizers of a spec, and put them into a module."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from qat.layers.activation import QUANT_ACTIVATIONS
from qat.layers.layer import QuantConv1d, QuantConv2d, QuantConvTranspose2d, QuantLayer, QuantLinear
from qat.layers.operands import quantizer_of_activation, quantizer_of_weight
from qat.layers.specs import QuantSpec
from qat.quantizers import Quantizer

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


def weight_quantizer_of(spec: QuantSpec, module: Any) -> nn.Module:
    """The quantizer of a layer's weight, started from that weight."""
    # The quantized form of the layer knows in which form its weight is quantized, and along which axis.
    form = copy.copy(module)
    form.__class__ = QUANT_LAYERS[type(module)]
    return quantizer_of_weight(spec.config, spec.weight_bits, form.effective_weight, form.channel_axis)


def activation_quantizer_of(spec: QuantSpec, samples: list[Tensor]) -> nn.Module:
    """The quantizer of an activation or of a layer's input, started from samples of it."""
    # A layer that ran several times starts from the inputs of all calls.
    sample = samples[0] if len(samples) == 1 else torch.cat([sample.flatten() for sample in samples])
    return quantizer_of_activation(spec.config, spec.input_bits, sample, spec.signed, spec.name)

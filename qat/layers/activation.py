"""Activations whose output is quantized."""

from typing import Any

import torch
from torch import Tensor, nn

from qat.layers.config import OF_WEIGHTS
from qat.layers.operands import quantizer_of_activation, split_options
from qat.quantizers import Quantizer
from qat.torch_private import has_hooks_without_kwargs


class QuantActivation(nn.Module):
    """`quantizer(activation(x))`. Abstract base class; it comes before torch's activation in the bases.

    `quantize` changes the class of a module, so its parameters (`nn.PReLU`), keys and settings stay.

    Args:
        quantizer: a `Quantizer`, or `activation_bits` instead.
        *args, **kwargs: the arguments of torch's activation, and these options by name:
        activation_bits: bits of the output, 1 to 8 or 16, on an unsigned grid where it is never negative.
        rounding, activation_scale, activation_observer, power_of_two, asymmetric: as for `Quantization`. The
            first training batch sets the scale.

    Shape: any -> the same. The gradient is the quantizer's times the activation's.

    Raises:
        ValueError: an option is wrong, or neither a quantizer nor `activation_bits` is given, or both.
    """

    is_signed: bool = False  # whether the activation may be negative

    def __init__(self, quantizer: nn.Module | None = None, *args: Any, **kwargs: Any) -> None:
        config, given, of_torch = split_options(self, kwargs)
        super().__init__(*args, **of_torch)
        name = type(self).__name__
        if wrong := [option for option in given if option in (*OF_WEIGHTS, "input_signed")]:
            raise ValueError(f"{wrong[0]} has no effect in a {name}, which has no weight and no input grid")
        if (quantizer is None) != ("activation_bits" in given):
            rule = f"{name} needs either activation_bits or a quantizer"
            raise ValueError(f"{rule}; got {'neither' if quantizer is None else 'both'}")
        if quantizer is not None and not isinstance(quantizer, nn.Module):
            rule = f"the quantizer of a {name} must be a module"
            raise ValueError(f"{rule}, got {quantizer!r}; give bits by name: activation_bits=4")
        if quantizer is None:
            signed = self.is_signed and getattr(self, "min_val", -1) < 0
            bits, sample = config.activation_bits, torch.zeros(1)
            quantizer = quantizer_of_activation(config, bits, sample, signed, name)
        self.quantizer = quantizer

    def forward(self, input: Tensor) -> Tensor:
        return self.quantizer(super().forward(input))


class QuantReLU(QuantActivation, nn.ReLU):
    """`quantizer(relu(x))`; the gradient is the quantizer's where x > 0, else 0.

    Unless the ReLU works in place, a `Quantizer` computes both steps and saves nothing for the ReLU. It does
    so by `quantizer(x, relu=True)`, which hooks with keyword arguments see; while it has other hooks, it is
    called with relu(x) instead.
    """

    def forward(self, input: Tensor) -> Tensor:
        q = self.quantizer
        if self.inplace or not isinstance(q, Quantizer) or has_hooks_without_kwargs(q):
            return super().forward(input)
        return q(input, relu=True)


def _quantized(kind: type[nn.Module], signed: bool = False) -> type[QuantActivation]:
    """The quantized class of an activation; pickle finds it by its name in this module."""
    doc = f"`quantizer(x)` after `nn.{kind.__name__}`; see `QuantActivation`."
    contents = {"__module__": __name__, "__doc__": doc, "is_signed": signed}
    return type(f"Quant{kind.__name__}", (QuantActivation, kind), contents)


# Unsigned; QuantHardtanh where `min_val` is not negative.
QuantReLU6 = _quantized(nn.ReLU6)
QuantHardtanh = _quantized(nn.Hardtanh, signed=True)
QuantSigmoid = _quantized(nn.Sigmoid)
QuantHardsigmoid = _quantized(nn.Hardsigmoid)
QuantSoftplus = _quantized(nn.Softplus)
# Signed; the slopes of QuantPReLU stay float.
QuantSiLU = _quantized(nn.SiLU, signed=True)
QuantHardswish = _quantized(nn.Hardswish, signed=True)
QuantMish = _quantized(nn.Mish, signed=True)
QuantGELU = _quantized(nn.GELU, signed=True)
QuantELU = _quantized(nn.ELU, signed=True)
QuantLeakyReLU = _quantized(nn.LeakyReLU, signed=True)
QuantPReLU = _quantized(nn.PReLU, signed=True)
QuantTanh = _quantized(nn.Tanh, signed=True)

# torch's class -> the quantized class
QUANT_ACTIVATIONS: dict[type[nn.Module], type[QuantActivation]] = {
    kind.__bases__[1]: kind for kind in QuantActivation.__subclasses__()
}

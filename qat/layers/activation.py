"""Activations whose output is quantized."""

from typing import Any

from torch import Tensor, nn

from qat.quantizers import Quantizer


class QuantActivation(nn.Module):
    """`quantizer(activation(x))`. Abstract base class; it comes before torch's activation in the bases.

    `quantize` changes the class of a module, so its parameters (`nn.PReLU`), keys and settings stay.

    Args:
        quantizer: a `Quantizer`, on an unsigned grid where the activation is never negative.
        *args, **kwargs: the arguments of torch's activation.

    Shape: any -> the same. The gradient is the quantizer's times the activation's.
    """

    def __init__(self, quantizer: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.quantizer = quantizer

    def forward(self, input: Tensor) -> Tensor:
        return self.quantizer(super().forward(input))


class QuantReLU(QuantActivation, nn.ReLU):
    """`quantizer(relu(x))`; the gradient is the quantizer's where x > 0, else 0.

    Unless the ReLU works in place, a `Quantizer` computes both steps and saves nothing for the ReLU.
    """

    def forward(self, input: Tensor) -> Tensor:
        if self.inplace or not isinstance(self.quantizer, Quantizer):
            return super().forward(input)
        return self.quantizer(input, relu=True)


def _quantized(kind: type[nn.Module]) -> type[QuantActivation]:
    """The quantized class of an activation; pickle finds it by its name in this module."""
    contents = {"__module__": __name__, "__doc__": f"`quantizer(x)` after `nn.{kind.__name__}`."}
    return type(f"Quant{kind.__name__}", (QuantActivation, kind), contents)


# Unsigned; QuantHardtanh where `min_val` is not negative.
QuantReLU6 = _quantized(nn.ReLU6)
QuantHardtanh = _quantized(nn.Hardtanh)
QuantSigmoid = _quantized(nn.Sigmoid)
QuantHardsigmoid = _quantized(nn.Hardsigmoid)
QuantSoftplus = _quantized(nn.Softplus)
# Signed; the slopes of QuantPReLU stay float.
QuantSiLU = _quantized(nn.SiLU)
QuantHardswish = _quantized(nn.Hardswish)
QuantMish = _quantized(nn.Mish)
QuantGELU = _quantized(nn.GELU)
QuantELU = _quantized(nn.ELU)
QuantLeakyReLU = _quantized(nn.LeakyReLU)
QuantPReLU = _quantized(nn.PReLU)
QuantTanh = _quantized(nn.Tanh)

# torch's class -> the quantized class
QUANT_ACTIVATIONS: dict[type[nn.Module], type[QuantActivation]] = {
    kind.__bases__[1]: kind for kind in QuantActivation.__subclasses__()
}

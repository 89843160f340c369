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


class QuantReLU6(QuantActivation, nn.ReLU6):
    """`quantizer(min(max(x, 0), 6))`."""


class QuantHardtanh(QuantActivation, nn.Hardtanh):
    """`quantizer(hardtanh(x))`; unsigned where `min_val` is not negative."""


class QuantSigmoid(QuantActivation, nn.Sigmoid):
    """`quantizer(sigmoid(x))`."""


class QuantHardsigmoid(QuantActivation, nn.Hardsigmoid):
    """`quantizer(hardsigmoid(x))`."""


class QuantSoftplus(QuantActivation, nn.Softplus):
    """`quantizer(softplus(x))`."""


class QuantSiLU(QuantActivation, nn.SiLU):
    """`quantizer(x sigmoid(x))`; signed."""


class QuantHardswish(QuantActivation, nn.Hardswish):
    """`quantizer(hardswish(x))`; signed."""


class QuantMish(QuantActivation, nn.Mish):
    """`quantizer(mish(x))`; signed."""


class QuantGELU(QuantActivation, nn.GELU):
    """`quantizer(gelu(x))`; signed."""


class QuantELU(QuantActivation, nn.ELU):
    """`quantizer(elu(x))`; signed."""


class QuantLeakyReLU(QuantActivation, nn.LeakyReLU):
    """`quantizer(leaky_relu(x))`; signed."""


class QuantPReLU(QuantActivation, nn.PReLU):
    """`quantizer(prelu(x))`; signed. Its slopes stay float."""


class QuantTanh(QuantActivation, nn.Tanh):
    """`quantizer(tanh(x))`; signed."""


# torch's class -> the quantized one
QUANT_ACTIVATIONS: dict[type[nn.Module], type[QuantActivation]] = {
    kind.__bases__[1]: kind for kind in QuantActivation.__subclasses__()
}

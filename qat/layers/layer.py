"""The base class of quantized layers: two quantizers, one for each operand."""

from typing import Any, ClassVar

from torch import Tensor, nn


class QuantLayer(nn.Module):
    """Abstract base class; it comes before torch's layer in the bases of a quantized layer.

    Forward: `operator(input_quantizer(input), weight_quantizer(weight), bias)`. The bias stays float.
    With two `nn.Identity()` the layer equals torch's bit for bit.

    Args:
        *args, **kwargs: the arguments of torch's layer.
        weight_quantizer: a `Quantizer`, or `nn.Identity()`.
        input_quantizer: the same; `nn.Identity()` where the input comes from a quantized activation.
    """

    channel_axis: ClassVar[int] = 0  # the axis of the weight that per-channel scales follow
    weight: Any  # a parameter; torch's layers declare its type in different ways
    bias: Any

    def __init__(
        self, *args: Any, weight_quantizer: nn.Module, input_quantizer: nn.Module, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.weight_quantizer = weight_quantizer
        self.input_quantizer = input_quantizer

    @property
    def effective_weight(self) -> Tensor:
        """The weight that is quantized: the layer's own, unless a BatchNorm is folded into it first."""
        return self.weight

    @property
    def effective_bias(self) -> Tensor | None:
        """The bias that is added: the layer's own, unless a BatchNorm is folded into it."""
        return self.bias

    def forward(self, input: Tensor) -> Tensor:
        return self.operator(
            self.input_quantizer(input), self.weight_quantizer(self.effective_weight), self.effective_bias
        )

    def operator(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The function of torch's layer, on the given operands."""
        raise NotImplementedError

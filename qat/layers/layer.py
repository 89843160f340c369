"""Quantized layers: torch's convolutions and linear layer with two quantizers, one for each operand."""

from typing import Any, ClassVar

import torch.nn.functional as F
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


# `_conv_forward` and `_output_padding` are private, but they are what torch's own subclasses call;
# `tests/test_torch_private.py` watches them.


class QuantConv1d(QuantLayer, nn.Conv1d):
    """`nn.Conv1d` on quantized operands.

    Shape: `(N, C_in, L)` -> `(N, C_out, L_out)`, weight `(O, I / groups, k)`.
    """

    operator = nn.Conv1d._conv_forward


class QuantConv2d(QuantLayer, nn.Conv2d):
    """`nn.Conv2d` on a quantized input and weight.

    Shape: `(N, C_in, H, W)` -> `(N, C_out, H_out, W_out)`, weight `(O, I / groups, kH, kW)`.
    """

    operator = nn.Conv2d._conv_forward


class QuantConvTranspose2d(QuantLayer, nn.ConvTranspose2d):
    """`nn.ConvTranspose2d` on a quantized input and weight.

    Per-channel scales follow axis 1. With groups, the channels at one position in all groups share a scale.

    Shape: `(N, C_in, H, W)` -> `(N, C_out, H_out, W_out)`, weight `(I, O / groups, kH, kW)`.
    """

    channel_axis: ClassVar[int] = 1

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        padding: list[int] = list(self.padding)  # type: ignore[arg-type]  # a string only in other convolutions
        sizes = list(self.stride), padding, list(self.kernel_size)
        output_padding = self._output_padding(input, output_size, *sizes, 2, list(self.dilation))
        x, weight = self.input_quantizer(input), self.weight_quantizer(self.effective_weight)
        settings = self.stride, padding, output_padding, self.groups, self.dilation
        return F.conv_transpose2d(x, weight, self.effective_bias, *settings)


class QuantLinear(QuantLayer, nn.Linear):
    """`nn.Linear` on quantized operands: `(N, ..., I)` -> `(N, ..., O)`, weight `(O, I)`."""

    def operator(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(input, weight, bias)

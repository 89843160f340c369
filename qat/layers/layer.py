"""Quantized layers: torch's convolutions and linear layer with two quantizers, one for each operand."""

from typing import Any

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

    weight: Any  # a parameter; torch's layers declare its type in different ways
    bias: Any

    def __init__(
        self, *args: Any, weight_quantizer: nn.Module, input_quantizer: nn.Module, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.weight_quantizer = weight_quantizer
        self.input_quantizer = input_quantizer

    @property
    def channel_axis(self) -> int:
        """The axis of `effective_weight` that holds the output channels, which per-channel scales follow."""
        return 0

    @property
    def effective_weight(self) -> Tensor:
        """The weight that is quantized: the layer's own, unless a BatchNorm is folded into it first."""
        return self.weight

    @property
    def effective_bias(self) -> Tensor | None:
        """The bias that is added: the layer's own, unless a BatchNorm is folded into it."""
        return self.bias

    def forward(self, input: Tensor) -> Tensor:
        x = self.input_quantizer(input)
        return self.operator(x, self.weight_quantizer(self.effective_weight), self.effective_bias)

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

    Without groups, per-channel scales follow axis 1 of the weight. With groups, axis 1 holds the channels of
    one group alone, so the weight is quantized in the form `(O, I / groups, kH, kW)`, along axis 0.

    Shape: `(N, C_in, H, W)` -> `(N, C_out, H_out, W_out)`, weight `(I, O / groups, kH, kW)`.
    """

    @property
    def channel_axis(self) -> int:
        return 1 if self.groups == 1 else 0

    @property
    def effective_weight(self) -> Tensor:
        return _swap_channels(self.weight, self.groups)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        padding: list[int] = list(self.padding)  # type: ignore[arg-type]  # a string only in other convolutions
        sizes = list(self.stride), padding, list(self.kernel_size)
        output_padding = self._output_padding(input, output_size, *sizes, 2, list(self.dilation))
        x = self.input_quantizer(input)
        weight = _swap_channels(self.weight_quantizer(self.effective_weight), self.groups)
        settings = self.stride, padding, output_padding, self.groups, self.dilation
        return F.conv_transpose2d(x, weight, self.effective_bias, *settings)


def _swap_channels(weight: Tensor, groups: int) -> Tensor:
    """Shape: `(I, O / groups, ...)` -> `(O, I / groups, ...)`, and back; one group stays as it is."""
    if groups == 1:
        return weight
    return weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)


class QuantLinear(QuantLayer, nn.Linear):
    """`nn.Linear` on quantized operands: `(N, ..., I)` -> `(N, ..., O)`, weight `(O, I)`."""

    def operator(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(input, weight, bias)

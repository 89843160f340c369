"""Convolutions whose operands are quantized."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from qat.layers.layer import QuantLayer


class QuantConv1d(QuantLayer, nn.Conv1d):
    """`nn.Conv1d` on a quantized input and weight.

    Shape: `(N, C_in, L)` -> `(N, C_out, L_out)`, weight `(O, I / groups, k)`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(self.input_quantizer(input), self.weight_quantizer(self.weight), self.bias)


class QuantConv2d(QuantLayer, nn.Conv2d):
    """`nn.Conv2d` on a quantized input and weight.

    Shape: `(N, C_in, H, W)` -> `(N, C_out, H_out, W_out)`, weight `(O, I / groups, kH, kW)`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(self.input_quantizer(input), self.weight_quantizer(self.weight), self.bias)


class QuantConvTranspose2d(QuantLayer, nn.ConvTranspose2d):
    """`nn.ConvTranspose2d` on a quantized input and weight.

    Per channel means along axis 1: with groups, the channels at one place of every group share a scale.

    Shape: `(N, C_in, H, W)` -> `(N, C_out, H_out, W_out)`, weight `(I, O / groups, kH, kW)`.
    """

    channel_axis: ClassVar[int] = 1

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        padding = self._output_padding(
            input,
            output_size,
            list(self.stride),
            list(self.padding),  # type: ignore[arg-type]  # a string only in the classes that do not transpose
            list(self.kernel_size),
            2,
            list(self.dilation),
        )
        return F.conv_transpose2d(
            self.input_quantizer(input),
            self.weight_quantizer(self.weight),
            self.bias,
            self.stride,
            self.padding,  # type: ignore[arg-type] # as above
            padding,
            self.groups,
            self.dilation,
        )

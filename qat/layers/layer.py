"""Quantized layers: torch's convolutions and linear layer with two quantizers, one for each operand."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qat.layers.config import FLOAT, OF_ACTIVATIONS, OF_WEIGHTS
from qat.layers.operands import quantizer_of_activation, quantizer_of_weight, split_options


class QuantLayer(nn.Module):
    """Abstract base class; it comes before torch's layer in the bases of a quantized layer.

    Forward: `operator(input_quantizer(input), weight_quantizer(weight), bias)`. The bias stays float.
    With two `nn.Identity()` the layer equals torch's bit for bit. `QuantConv2d(3, 16, 3, weight_bits=4,
    activation_bits=4)` has the quantizers that `quantize` gives to an `nn.Conv2d`.

    Args:
        *args, **kwargs: the arguments of torch's layer, and these options, all of them by name:
        weight_bits: bits of the weight, 1 to 8 or 16; 32 or None: it stays float.
        activation_bits: bits of the input; 32 or None: the input stays as it is, because it is on a grid
            already (after a `QuantReLU`), or float.
        input_signed: whether the input may be negative, by default True; images in [0, 1] are not.
        rounding, weight_scale, activation_scale, weight_observer, activation_observer, power_of_two,
            asymmetric, per_channel: as for `Quantization`. The first training batch sets the scale of the
            input.
        weight_quantizer, input_quantizer: instead of bits, a `Quantizer` or `nn.Identity()`.

    Raises:
        ValueError: an option is wrong, or has no effect; both bits and a quantizer are given.
    """

    weight: Any  # a parameter; torch's layers declare its type in different ways
    bias: Any

    def __init__(
        self,
        *args: Any,
        weight_quantizer: nn.Module | None = None,
        input_quantizer: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        config, given, of_torch = split_options(self, kwargs)
        super().__init__(*args, **of_torch)
        for operand, quantizer in (("weight", weight_quantizer), ("activation", input_quantizer)):
            used = config.weight_bits if operand == "weight" else config.activation_bits
            of_operand = OF_WEIGHTS if operand == "weight" else (*OF_ACTIVATIONS, "input_signed")
            idle = [name for name in of_operand if given.get(name) is not None]
            if quantizer is None:  # 32 bits are no quantizer
                idle = [name for name in idle if name != f"{operand}_bits"]
            elif not isinstance(quantizer, nn.Module):
                argument = "weight_quantizer" if operand == "weight" else "input_quantizer"
                raise ValueError(f"{argument} must be a module, got {quantizer!r}")
            if idle and (quantizer is not None or used == FLOAT):
                instead = (
                    "their quantizer is given" if quantizer is not None else f"{operand}_bits are not given"
                )
                raise ValueError(f"{idle[0]} has no effect in a {type(self).__name__}, because {instead}")
        if weight_quantizer is None:
            weight = self.effective_weight
            weight_quantizer = quantizer_of_weight(config, config.weight_bits, weight, self.channel_axis)
        if input_quantizer is None:
            sample = torch.zeros(1, device=self.weight.device)
            options = config.activation_bits, sample, config.input_signed, type(self).__name__
            input_quantizer = quantizer_of_activation(config, *options)
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

    def own_form(self, x: Tensor) -> Tensor:
        """A tensor of the form of `effective_weight` in that of the layer's own weight."""
        return x

    def weight_of(self, effective: Tensor) -> Tensor:
        """The layer's own weight for a given `effective_weight`, up to rounding."""
        return self.own_form(effective)

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

    def own_form(self, x: Tensor) -> Tensor:
        return _swap_channels(x, self.groups)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        padding: list[int] = list(self.padding)  # type: ignore[arg-type]  # a string only in other convolutions
        sizes = list(self.stride), padding, list(self.kernel_size)
        output_padding = self._output_padding(input, output_size, *sizes, 2, list(self.dilation))
        x = self.input_quantizer(input)
        weight = self.own_form(self.weight_quantizer(self.effective_weight))
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

"""Activations whose output is quantized."""

from torch import Tensor, nn


class QuantReLU(nn.ReLU):
    """`quantizer(relu(x))`; the gradient is the quantizer's where x > 0, else 0.

    Args:
        quantizer: a `Quantizer` on an unsigned grid.
        inplace: whether the ReLU overwrites its input.

    Shape: any -> the same.
    """

    def __init__(self, quantizer: nn.Module, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.quantizer = quantizer

    def forward(self, input: Tensor) -> Tensor:
        return self.quantizer(super().forward(input))

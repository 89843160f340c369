"""Torch's layers with quantizers inside, and the conversion of a float model."""

from qat.layers.activation import QuantReLU
from qat.layers.config import Quantization
from qat.layers.conv import QuantConv2d
from qat.layers.convert import quantize
from qat.layers.linear import QuantLinear

__all__ = ["QuantConv2d", "QuantLinear", "QuantReLU", "Quantization", "quantize"]

"""Torch's layers with quantizers inside, and the conversion of a float model."""

from qat.layers.activation import QuantActivation, QuantReLU
from qat.layers.config import Quantization
from qat.layers.conv import QuantConv1d, QuantConv2d, QuantConvTranspose2d, QuantLinear
from qat.layers.convert import quantize
from qat.layers.cost import LayerCost, Summary
from qat.layers.folding import Folding, fold_batchnorm
from qat.layers.layer import QuantLayer
from qat.layers.summary import summary

__all__ = [
    "Folding",
    "LayerCost",
    "QuantActivation",
    "QuantConv1d",
    "QuantConv2d",
    "QuantConvTranspose2d",
    "QuantLayer",
    "QuantLinear",
    "QuantReLU",
    "Quantization",
    "Summary",
    "fold_batchnorm",
    "quantize",
    "summary",
]

"""Torch's layers with quantizers inside, and the conversion of a float model."""

from qat.layers.activation import QuantActivation, QuantReLU
from qat.layers.config import Quantization
from qat.layers.convert import quantize
from qat.layers.folding import Folding, fold_batchnorm
from qat.layers.layer import QuantConv1d, QuantConv2d, QuantConvTranspose2d, QuantLayer, QuantLinear
from qat.layers.remeasure import remeasure
from qat.layers.summary import LayerCost, Summary, summary

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
    "remeasure",
    "summary",
]

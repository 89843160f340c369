"""Torch's layers with quantizers inside, and the conversion of a float model."""

from qat.layers.activation import (
    QuantActivation,
    QuantELU,
    QuantGELU,
    QuantHardsigmoid,
    QuantHardswish,
    QuantHardtanh,
    QuantLeakyReLU,
    QuantMish,
    QuantPReLU,
    QuantReLU,
    QuantReLU6,
    QuantSigmoid,
    QuantSiLU,
    QuantSoftplus,
    QuantTanh,
)
from qat.layers.config import Quantization
from qat.layers.convert import quantize
from qat.layers.folding import Folding, fold_batchnorm
from qat.layers.layer import QuantConv1d, QuantConv2d, QuantConvTranspose2d, QuantLayer, QuantLinear
from qat.layers.remeasure import remeasure
from qat.layers.state import WeightCodes, freeze, scale_parameters, unfreeze, weight_codes
from qat.layers.summary import LayerCost, Summary, summary

__all__ = [
    "Folding",
    "LayerCost",
    "QuantActivation",
    "QuantConv1d",
    "QuantConv2d",
    "QuantConvTranspose2d",
    "QuantELU",
    "QuantGELU",
    "QuantHardsigmoid",
    "QuantHardswish",
    "QuantHardtanh",
    "QuantLayer",
    "QuantLeakyReLU",
    "QuantLinear",
    "QuantMish",
    "QuantPReLU",
    "QuantReLU",
    "QuantReLU6",
    "QuantSiLU",
    "QuantSigmoid",
    "QuantSoftplus",
    "QuantTanh",
    "Quantization",
    "Summary",
    "WeightCodes",
    "fold_batchnorm",
    "freeze",
    "quantize",
    "remeasure",
    "scale_parameters",
    "summary",
    "unfreeze",
    "weight_codes",
]

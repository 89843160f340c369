"""Quantizers: they round a tensor to an integer grid."""

from qat.quantizers.asymmetric import AsymmetricScale
from qat.quantizers.build import (
    ActivationObserverName,
    ActivationScaleName,
    LevelsName,
    WeightObserverName,
    WeightScaleName,
    activation_quantizer,
    weight_quantizer,
)
from qat.quantizers.compilation import build_kernels, compile_kernels, use_eager_kernels
from qat.quantizers.dorefa import DorefaScale
from qat.quantizers.formula import follows_formula
from qat.quantizers.grid import IntGrid
from qat.quantizers.learned import LearnedScale
from qat.quantizers.observed import ObservedScale
from qat.quantizers.observers import Observer
from qat.quantizers.pact import PactScale
from qat.quantizers.power_of_two import PowerOfTwo
from qat.quantizers.quantizer import Quantizer, check_state
from qat.quantizers.scale import Scale

__all__ = [
    "ActivationObserverName",
    "ActivationScaleName",
    "AsymmetricScale",
    "DorefaScale",
    "IntGrid",
    "LearnedScale",
    "LevelsName",
    "ObservedScale",
    "Observer",
    "PactScale",
    "PowerOfTwo",
    "Quantizer",
    "Scale",
    "WeightObserverName",
    "WeightScaleName",
    "activation_quantizer",
    "build_kernels",
    "check_state",
    "compile_kernels",
    "follows_formula",
    "use_eager_kernels",
    "weight_quantizer",
]

"""Check user-defined roundings, observers, scales and quantizers against the contract of built-in ones."""

from qat.testing.observer import check_observer
from qat.testing.quantizer import check_quantizer
from qat.testing.rounding import check_rounding
from qat.testing.scale import check_scale

__all__ = ["check_observer", "check_quantizer", "check_rounding", "check_scale"]

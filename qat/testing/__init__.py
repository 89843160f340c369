"""Check user-defined roundings, scales and quantizers against the contract of the built-in ones."""

from qat.testing.quantizer import check_quantizer
from qat.testing.rounding import check_rounding
from qat.testing.scale import check_scale

__all__ = ["check_quantizer", "check_rounding", "check_scale"]

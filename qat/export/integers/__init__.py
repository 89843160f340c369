"""A trained model in integers alone: lowered to a program, run by NumPy, written as npz."""

from qat.export.integers.model import IntegerAgreement, IntegerModel
from qat.export.integers.npz import npz_bytes, npz_logits, write_npz
from qat.export.integers.program import Accumulator, IntArray, Program, Step

__all__ = [
    "Accumulator",
    "IntArray",
    "IntegerAgreement",
    "IntegerModel",
    "Program",
    "Step",
    "npz_bytes",
    "npz_logits",
    "write_npz",
]

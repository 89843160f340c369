"""A trained model for other runtimes, and the proof that it is the same."""

from qat.export.c_source import CSource, write_c
from qat.export.first_difference import Difference
from qat.export.integer import IntegerAgreement, IntegerModel
from qat.export.npz import write_npz
from qat.export.onnx import export_onnx
from qat.export.program import Accumulator, Program
from qat.export.sizes import Sizes, c_sizes, npz_sizes, onnx_sizes
from qat.export.verify import Agreement, Verification, verify

__all__ = [
    "Accumulator",
    "Agreement",
    "CSource",
    "Difference",
    "IntegerAgreement",
    "IntegerModel",
    "Program",
    "Sizes",
    "Verification",
    "c_sizes",
    "export_onnx",
    "npz_sizes",
    "onnx_sizes",
    "verify",
    "write_c",
    "write_npz",
]

"""A trained model for other runtimes, and the proof that it is the same."""

from qat.export.c.source import CSource, write_c
from qat.export.integers.integer import IntegerAgreement, IntegerModel
from qat.export.integers.npz import write_npz
from qat.export.integers.program import Accumulator, Program
from qat.export.onnx.first_difference import Difference
from qat.export.onnx.onnx import export_onnx
from qat.export.onnx.sizes import Sizes, c_sizes, npz_sizes, onnx_sizes
from qat.export.onnx.verify import Agreement, Verification, verify

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

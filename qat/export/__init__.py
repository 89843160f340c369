"""A trained model for other runtimes, and the proof that it is the same."""

from qat.export.agreement import Agreement
from qat.export.c import COMPILERS, CSource, c_logits, find_compiler, write_c
from qat.export.integers import (
    Accumulator,
    IntegerAgreement,
    IntegerModel,
    Program,
    npz_logits,
    write_npz,
)
from qat.export.onnx import CodeDifference, Verification, export_onnx, verify
from qat.export.sizes import Sizes, c_sizes, npz_sizes, onnx_sizes, sizes_by_width

__all__ = [
    "COMPILERS",
    "Accumulator",
    "Agreement",
    "CSource",
    "CodeDifference",
    "IntegerAgreement",
    "IntegerModel",
    "Program",
    "Sizes",
    "Verification",
    "c_logits",
    "c_sizes",
    "export_onnx",
    "find_compiler",
    "npz_logits",
    "npz_sizes",
    "onnx_sizes",
    "sizes_by_width",
    "verify",
    "write_c",
    "write_npz",
]

"""A trained model for other runtimes, and the proof that it is the same."""

from qat.export.agreement import Agreement
from qat.export.c.compile import c_logits, find_compiler
from qat.export.c.source import CSource, write_c
from qat.export.integers.model import IntegerAgreement, IntegerModel
from qat.export.integers.npz import npz_logits, write_npz
from qat.export.integers.program import Accumulator, Program
from qat.export.onnx.export import export_onnx
from qat.export.onnx.first_difference import CodeDifference
from qat.export.onnx.verify import Verification, verify
from qat.export.sizes import Sizes, c_sizes, npz_sizes, onnx_sizes, sizes_by_width

__all__ = [
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

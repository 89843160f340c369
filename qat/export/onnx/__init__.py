"""A trained model as an ONNX file, and the proof that the file computes the same."""

from qat.export.onnx.export import export_onnx, onnx_bytes
from qat.export.onnx.first_difference import Difference
from qat.export.onnx.verify import Verification, verify

__all__ = ["Difference", "Verification", "export_onnx", "onnx_bytes", "verify"]

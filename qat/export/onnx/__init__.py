"""A trained model as an ONNX file, and the proof that the file computes the same."""

from qat.export.onnx.export import export_onnx, onnx_bytes
from qat.export.onnx.first_difference import CodeDifference
from qat.export.onnx.verify import Verification, verify

__all__ = ["CodeDifference", "Verification", "export_onnx", "onnx_bytes", "verify"]

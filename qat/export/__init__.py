"""A trained model for other runtimes, and the proof that it is the same."""

from qat.export.onnx import export_onnx
from qat.export.verify import Agreement, Verification, verify

__all__ = ["Agreement", "Verification", "export_onnx", "verify"]

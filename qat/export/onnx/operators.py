"""ONNX's QuantizeLinear and DequantizeLinear as modules that torch's exporter writes as they are.

The exporter knows no integer types below 8 bits. The modules therefore stand in with 8 bits, and hold what
`torch_export.py` puts into the file instead.
"""

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from torch import Tensor, nn
from torch.onnx import ops

from qat.export.readiness import scale_of, zero_point_of
from qat.layers import QuantLayer
from qat.quantizers import IntGrid, Quantizer

CodeType = np.dtype[Any]  # of NumPy, or of ml_dtypes below 8 bits


def code_type(grid: IntGrid, opset: int) -> CodeType:
    """The narrowest type that holds the codes of a grid: of 2 (since opset 25), 4, 8 or 16 bits."""
    bits = next(width for width in (2, 4, 8, 16) if width >= grid.bits and (width > 2 or opset >= 25))
    return helper.tensor_dtype_to_np_dtype(getattr(TensorProto, f"{'' if grid.signed else 'U'}INT{bits}"))


class QuantizeDequantize(nn.Module):
    """An activation's quantizer: a Clip if the type holds more codes than the grid, then both operators."""

    def __init__(self, quantizer: Quantizer, opset: int) -> None:
        super().__init__()
        grid, scale = quantizer.grid, scale_of(quantizer)
        self.code_type: CodeType = code_type(grid, opset)
        self.zero = zero_point_of(quantizer, scale)
        limits = ml_dtypes.iinfo(self.code_type)
        ends = [float((end - self.zero) * scale) for end in (grid.low, grid.high)]
        self.clip = ends if (limits.min, limits.max) != (grid.low, grid.high) else None
        self.scale: Tensor = nn.Buffer(scale.clone())
        self.zero_point: Tensor = nn.Buffer(torch.zeros((), dtype=torch.uint8))  # stands in

    def forward(self, x: Tensor) -> Tensor:
        if self.clip:
            x = x.clamp(*self.clip)
        grid = (self.scale, self.zero_point)
        codes = ops.symbolic("QuantizeLinear", (x, *grid), dtype=torch.uint8, shape=x.shape, version=21)
        return ops.symbolic(
            "DequantizeLinear", (codes, *grid), dtype=torch.float32, shape=x.shape, version=21
        )


class StoredWeight(nn.Module):
    """A weight's quantizer: DequantizeLinear of constant codes."""

    def __init__(self, layer: QuantLayer, opset: int) -> None:
        super().__init__()
        quantizer, weight = layer.weight_quantizer, layer.effective_weight.detach()
        assert isinstance(quantizer, Quantizer)
        scale = quantizer.scale(weight).detach()
        self.code_type: CodeType = code_type(quantizer.grid, opset)
        self.codes: NDArray[np.int64] = quantizer.codes(weight).numpy().astype(np.int64)
        self.attributes: dict[str, Any] = {"axis": layer.channel_axis} if scale.dim() else {}
        self.scale: Tensor = nn.Buffer(scale.reshape(-1) if scale.dim() else scale.clone())
        self.placeholder: Tensor = nn.Buffer(torch.zeros(weight.shape, dtype=torch.int8))

    def forward(self, weight: Tensor) -> Tensor:
        inputs, shape = (self.placeholder, self.scale), weight.shape
        return ops.symbolic(
            "DequantizeLinear", inputs, self.attributes, dtype=torch.float32, shape=shape, version=21
        )

    def multiply(self, factor: Tensor) -> None:
        """Multiply each output channel by a factor: the scale by its magnitude, the codes by its sign."""
        sign = np.where(factor.numpy() < 0, -1, 1)
        self.codes = self.codes * sign.reshape(-1, *(1,) * (self.codes.ndim - 1))
        self.scale = (self.scale.double() * factor.abs()).float()
        self.attributes = {"axis": 0}

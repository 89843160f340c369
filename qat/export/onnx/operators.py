"""ONNX's QuantizeLinear and DequantizeLinear as modules that torch's exporter writes as they are.

The exporter knows no integer types below 8 bits, and it merges operators and constants that are equal. The
modules therefore leave stand-ins that name their quantizer, and hold the constants for `torch_export.py`.
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

DOMAIN = "qat"  # of the stand-ins

CodeType = np.dtype[Any]  # of NumPy, or of ml_dtypes below 8 bits


def code_type(grid: IntGrid, opset: int) -> CodeType:
    """The narrowest type that holds the codes of a grid: of 2 (since opset 25), 4, 8 or 16 bits."""
    bits = next(width for width in (2, 4, 8, 16) if width >= grid.bits and (width > 2 or opset >= 25))
    return helper.tensor_dtype_to_np_dtype(getattr(TensorProto, f"{'' if grid.signed else 'U'}INT{bits}"))


class QuantizeDequantize(nn.Module):
    """An activation's quantizer: a Clip if the type holds more codes than the grid, then both operators."""

    def __init__(self, name: str, quantizer: Quantizer, opset: int) -> None:
        super().__init__()
        grid, scale, kind = quantizer.grid, scale_of(quantizer), code_type(quantizer.grid, opset)
        zero, limits = zero_point_of(quantizer, scale), ml_dtypes.iinfo(kind)
        ends = [float((end - zero) * scale) for end in (grid.low, grid.high)]
        self.clip = ends if (limits.min, limits.max) != (grid.low, grid.high) else None
        self.name = name
        self.constants = {f"{name}.scale": scale.numpy(), f"{name}.zero_point": np.array(zero).astype(kind)}

    def forward(self, x: Tensor) -> Tensor:
        if self.clip:
            x = x.clamp(*self.clip)
        codes = _stand_in(self.name, "QuantizeLinear", [x], x.shape)
        return _stand_in(self.name, "DequantizeLinear", [codes], x.shape)


class StoredWeight(nn.Module):
    """A weight's quantizer: DequantizeLinear of constant codes."""

    def __init__(self, name: str, layer: QuantLayer, opset: int) -> None:
        super().__init__()
        quantizer, weight = layer.weight_quantizer, layer.effective_weight.detach()
        assert isinstance(quantizer, Quantizer)
        self.name = f"{name}.weight"
        self.code_type: CodeType = code_type(quantizer.grid, opset)
        self.codes: NDArray[np.int64] = quantizer.codes(weight).numpy().astype(np.int64)
        self.scale: NDArray[np.float32] = quantizer.scale(weight).detach().numpy()  # broadcasts to the codes

    def multiply(self, factor: NDArray[np.float64]) -> None:
        """Multiply by factors that broadcast: the scale by their magnitude, the codes by their sign."""
        self.codes = self.codes * np.where(factor < 0, -1, 1)
        self.scale = (self.scale * np.abs(factor)).astype(np.float32)

    @property
    def constants(self) -> dict[str, NDArray[Any]]:
        """The inputs of the operator."""
        scale = self.scale.reshape(-1 if self._axis else ())
        return {
            f"{self.name}.codes": self.codes.astype(self.code_type),
            f"{self.name}_quantizer.scale": scale,
        }

    def forward(self, weight: Tensor) -> Tensor:
        return _stand_in(self.name, "DequantizeLinear", [], self.codes.shape, self._axis)

    @property
    def _axis(self) -> dict[str, int]:
        """The attribute that names the axis of the scale; empty for one scale."""
        axes = [axis for axis, size in enumerate(self.scale.shape) if size > 1]
        return {"axis": axes[0]} if axes else {}


def _stand_in(
    name: str,
    kind: str,
    inputs: list[Tensor],
    shape: tuple[int, ...],
    attributes: dict[str, int] | None = None,
) -> Tensor:
    """An operator without its constants, in a domain of its own and with the name of its quantizer."""
    dtype = torch.uint8 if kind == "QuantizeLinear" else torch.float32
    named: dict[str, Any] = {"quantizer": name, **(attributes or {})}
    return ops.symbolic(f"{DOMAIN}::{kind}", inputs, named, dtype=dtype, shape=shape, version=1)

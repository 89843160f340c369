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
    needed = (max(grid.high, -1 - grid.low)).bit_length() + grid.signed
    bits = next(width for width in (2, 4, 8, 16) if width >= needed and (width > 2 or opset >= 25))
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
    """A weight's quantizer: DequantizeLinear of constant codes.

    The codes -3, -1, 1, 3 do not fit into two bits. They are stored as n = -2..1, with twice the scale, and
    the scale is added: `n (2 scale) + scale` is `(2 n + 1) scale`, to the last bit, because 2 n is 0 or a
    power of two.
    """

    def __init__(self, name: str, layer: QuantLayer, opset: int) -> None:
        super().__init__()
        quantizer, weight = layer.weight_quantizer, layer.effective_weight.detach()
        assert isinstance(quantizer, Quantizer)
        self.name = f"{name}.weight"
        self.is_shifted = quantizer.grid.midrise and quantizer.grid.bits == 2 and opset >= 25
        self.code_type: CodeType = code_type(IntGrid(2) if self.is_shifted else quantizer.grid, opset)
        self.codes: NDArray[np.int64] = quantizer.codes(weight).numpy().astype(np.int64)
        self.scale: NDArray[np.float32] = quantizer.scale(weight).detach().numpy()  # broadcasts to the codes

    def multiply(self, factor: NDArray[np.float64]) -> None:
        """Multiply by factors that broadcast: the scale by their magnitude, the codes by their sign."""
        self.codes = self.codes * np.where(factor < 0, -1, 1)
        self.scale = (self.scale * np.abs(factor)).astype(np.float32)

    @property
    def constants(self) -> dict[str, NDArray[Any]]:
        """The inputs of the operator."""
        codes, scale = self.codes, self.scale.reshape(-1 if self._axis else ())
        if self.is_shifted:
            codes, scale = (codes - 1) // 2, 2 * scale
        return {f"{self.name}.codes": codes.astype(self.code_type), f"{self.name}_quantizer.scale": scale}

    @property
    def shift(self) -> dict[str, NDArray[np.float32]]:
        """What is added to the operator's output; empty: nothing. It broadcasts to the codes."""
        return {f"{self.name}_quantizer.shift": self.scale} if self.is_shifted else {}

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

"""ONNX's integer types, and codes packed as they lie in a file."""

from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from qat.quantizers import IntGrid

OPSETS = (21, 22, 23, 24, 25)  # 21 brought 4 and 16 bits, 25 brought 2


@dataclass(frozen=True)
class IntegerType:
    """A type of ONNX that holds the codes of a grid.

    Args:
        bits: of one element in the file: 2, 4, 8 or 16.
        signed: whether it holds negative numbers.
    """

    bits: int
    signed: bool

    @property
    def number(self) -> int:
        """ONNX's number of the type."""
        return int(getattr(TensorProto, f"{'' if self.signed else 'U'}INT{self.bits}"))

    @property
    def low(self) -> int:
        """The smallest number that it holds."""
        return -(2 ** (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """The largest one."""
        return self.low + 2**self.bits - 1

    def tensor(self, name: str, codes: NDArray[np.int64]) -> onnx.TensorProto:
        """An initializer of this type."""
        packed = pack(codes, self.bits)
        return onnx.helper.make_tensor(name, self.number, codes.shape, packed, raw=True)


def type_for(grid: IntGrid, opset: int) -> IntegerType:
    """The narrowest type for the codes of a grid: of 2, 4, 8 or 16 bits."""
    widths = (2, 4, 8, 16) if opset >= 25 else (4, 8, 16)
    return IntegerType(next(width for width in widths if width >= grid.bits), grid.signed)


def pack(codes: NDArray[np.int64], bits: int) -> bytes:
    """The lowest `bits` of each code in two's complement, one after another, lowest bit first."""
    planes = (codes.reshape(-1, 1) >> np.arange(bits)) & 1
    return np.packbits(planes.astype(np.uint8), bitorder="little").tobytes()

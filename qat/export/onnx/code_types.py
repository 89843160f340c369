"""The integer types of ONNX that hold codes."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from qat.quantizers import IntGrid

# The format version of a file by its opset. Opset 21 added types of 4 bits, 25 those of 2 bits.
IR_VERSIONS = {21: 10, 22: 10, 23: 11, 24: 12, 25: 13}

CodeType = np.dtype[Any]  # of NumPy, or of ml_dtypes below 8 bits


def code_type(grid: IntGrid, opset: int) -> CodeType:
    """The narrowest type that holds the codes of a grid: of 2, 4, 8 or 16 bits."""
    widths = (2, 4, 8, 16) if opset >= 25 else (4, 8, 16)
    bits = next(width for width in widths if width >= grid.bits)
    name = f"{'' if grid.signed else 'U'}INT{bits}"
    return helper.tensor_dtype_to_np_dtype(getattr(TensorProto, name))

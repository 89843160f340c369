"""Integers as they lie in a file."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from qat.export.integers.integer_types import pack, type_for
from qat.quantizers import IntGrid


@pytest.mark.parametrize(
    ("bits", "signed", "opset", "number"),
    [
        (1, True, 25, TensorProto.INT2),
        (2, False, 25, TensorProto.UINT2),
        (2, False, 21, TensorProto.UINT4),
        (3, True, 25, TensorProto.INT4),
        (4, False, 21, TensorProto.UINT4),
        (5, True, 25, TensorProto.INT8),
        (8, False, 25, TensorProto.UINT8),
        (16, True, 21, TensorProto.INT16),
    ],
)
def test_the_narrowest_type(bits: int, signed: bool, opset: int, number: int) -> None:
    kind = type_for(IntGrid(bits, signed), opset)
    assert kind.number == number
    assert kind.low <= IntGrid(bits, signed).low <= IntGrid(bits, signed).high <= kind.high


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize("signed", [True, False])
def test_onnx_reads_what_is_packed(bits: int, signed: bool) -> None:
    kind = type_for(IntGrid(bits, signed), 25)
    codes = np.resize(np.arange(kind.low, kind.high + 1, max(1, 2**bits // 64)), (3, 5))
    tensor = kind.tensor("codes", codes)
    assert len(tensor.raw_data) == -(-15 * bits // 8)
    assert np.array_equal(numpy_helper.to_array(tensor).astype(np.int64), codes)
    assert onnx.helper.tensor_dtype_to_string(kind.number).endswith(f"INT{bits}")


def test_three_bits_cross_bytes() -> None:
    assert pack(np.array([1, 2, 3, -1]), 3) == bytes([0b11010001, 0b1110])

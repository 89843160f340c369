"""The types of codes in a file."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from qat.export.onnx.operators import code_type
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
    found = code_type(IntGrid(bits, signed), opset)
    assert onnx.helper.np_dtype_to_tensor_dtype(found) == number
    limits = ml_dtypes.iinfo(found)
    assert limits.min <= IntGrid(bits, signed).low <= IntGrid(bits, signed).high <= limits.max


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize("signed", [True, False])
def test_onnx_packs_the_codes(bits: int, signed: bool) -> None:
    found = code_type(IntGrid(bits, signed), 25)
    limits = ml_dtypes.iinfo(found)
    codes = np.resize(np.arange(limits.min, limits.max + 1, max(1, 2**bits // 64)), (3, 5))
    tensor = numpy_helper.from_array(codes.astype(found), "codes")
    assert len(tensor.raw_data) == -(-15 * bits // 8)
    assert np.array_equal(numpy_helper.to_array(tensor).astype(np.int64), codes)

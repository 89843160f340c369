"""The steps of a network in integers."""

import numpy as np

from qat.export.integers.program import pack


def test_three_bits_cross_bytes() -> None:
    assert pack(np.array([1, 2, 3, -1]), 3) == bytes([0b11010001, 0b1110])

"""Codes packed to their bits."""

import numpy as np

from qat.export.integers.packing import pack


def test_three_bits_cross_bytes() -> None:
    assert pack(np.array([1, 2, 3, -1]), 3) == bytes([0b11010001, 0b1110])

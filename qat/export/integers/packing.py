"""Codes packed to their bits."""

import numpy as np

from qat.export.integers.program import IntArray, Step


def pack(codes: IntArray, bits: int) -> bytes:
    """The lowest `bits` of each code in two's complement, one after another, lowest bit first."""
    planes = (codes.reshape(-1, 1) >> np.arange(bits)) & 1
    return np.packbits(planes.astype(np.uint8), bitorder="little").tobytes()


def packed_weight(step: Step) -> bytes:
    """The weight of a `conv`, as a file holds it."""
    grid = step.settings
    return pack((step.arrays["weight"] - grid["low"]) // grid["step"], grid["bits"])

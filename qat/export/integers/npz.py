"""An integer network as an .npz file for `reader.py`, which needs NumPy alone."""

import io
import json
from pathlib import Path

import numpy as np

from qat.export.integers.integer import IntegerModel, readable
from qat.export.integers.integer_types import pack
from qat.export.integers.program import Step
from qat.whole_file import write_whole


def write_npz(model: IntegerModel, path: str | Path) -> Path:
    """Write a network in integers: its steps in their order, as JSON, and their arrays.

    Weights are packed: `(code - low) / step` in `bits` bits each, lowest bit first. Multipliers and biases
    are int32, shifts uint8. Step 0 has the grid of the input, every `rescale` the one that it rounds to; the
    last one that of the logits.

    Args:
        model: in integers.
        path: of the file; it is written whole or not at all.

    Returns:
        The path.
    """
    return write_whole(path, npz_bytes(model))


def npz_bytes(model: IntegerModel) -> bytes:
    """The content of the file; the same network gives the same bytes."""
    steps, arrays = readable(model.program)
    for number, step in enumerate(model.program.steps):
        for name, array in step.arrays.items():
            key = f"{number}.{name}"
            if name == "weight":
                arrays[key] = np.frombuffer(packed_weight(step), np.uint8)
            else:
                arrays[key] = array.astype(np.uint8 if name == "shift" else np.int32)
    file = io.BytesIO()
    np.savez(file, steps=np.array(json.dumps(steps)), **arrays)
    return file.getvalue()


def packed_weight(step: Step) -> bytes:
    """The weight of a `conv`, as it lies in a file."""
    grid = step.settings
    return pack((step.arrays["weight"] - grid["low"]) // grid["step"], grid["bits"])

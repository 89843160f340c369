"""An integer network as an .npz file for `reader.py`, which needs NumPy alone."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qat.export.integers import reader
from qat.export.integers.model import IntegerModel, integer_logits
from qat.export.integers.program import IntArray
from qat.whole_file import write_whole


def write_npz(model: IntegerModel, path: str | Path, class_names: Sequence[str] | None = None) -> Path:
    """Write a network in integers: its steps in their order, as JSON, and their arrays.

    Weights are packed: `(code - low) / step` in `bits` bits each, lowest bit first. Multipliers and biases
    are int32, shifts uint8. Step 0 holds the grid of the input, each `rescale` the grid that it rounds to,
    and the last one the grid of the logits. The array `pixel_codes` holds the code of each pixel byte, and
    `class_names` the class names, if they are given. The file is written whole or not at all.

    Raises:
        ValueError: there is not one name for each class.
    """
    return write_whole(path, npz_bytes(model, class_names))


def npz_bytes(model: IntegerModel, class_names: Sequence[str] | None = None) -> bytes:
    """The content of the file. The same network gives the same bytes."""
    steps, arrays = model.program.for_reader()
    stored: dict[str, Any] = {"pixel_codes": model.pixel_codes().astype(np.int32)}
    if names := model.check_class_names(class_names):
        stored["class_names"] = np.array(names)
    for key, array in arrays.items():
        number, name = key.split(".")
        if name == "weight":
            stored[key] = np.frombuffer(model.program.steps[int(number)].packed_weight, np.uint8)
        else:
            stored[key] = array.astype(np.uint8 if name == "shift" else np.int32)
    file = io.BytesIO()
    np.savez(file, steps=np.array(json.dumps(steps)), **stored)
    return file.getvalue()


def npz_logits(path: Path, codes: IntArray) -> IntArray:
    """The integer logits of a file. Shape: `(N, C, H, W)` -> `(N, classes)`."""
    return integer_logits(reader.load(str(path)), codes, path.name)

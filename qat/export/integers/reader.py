"""Reads an integer network from an .npz file and runs it, with NumPy alone: `python reader.py FILE INPUT`.

The file holds `steps`, a list in JSON, arrays named `<step>.<name>`, `pixel_codes` (the code of each pixel
byte) and perhaps `class_names`. INPUT holds uint8 pixels or int64 codes. Step 0 is the input; each other step
computes integers `(N, C, H, W)` from those of earlier steps. Sums are computed in float64, because NumPy
multiplies matrices of floats faster than of integers; they are exact, for it holds integers up to 2^53.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray
Step = dict[str, Any]


def load(path: str) -> tuple[list[Step], dict[str, Array]]:
    """The steps and arrays of a file, with the weights unpacked."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name not in ("class_names", "pixel_codes")}
    steps = json.loads(str(arrays.pop("steps")))
    for number, step in enumerate(steps):
        if step["op"] == "conv":
            packed = arrays[f"{number}.weight"]
            planes = np.unpackbits(packed, count=step["bits"] * np.prod(step["shape"]), bitorder="little")
            codes = planes.reshape(-1, step["bits"]).astype(np.int64) @ (1 << np.arange(step["bits"]))
            arrays[f"{number}.weight"] = (codes * step["step"] + step["low"]).reshape(step["shape"])
    return steps, arrays


def conv(x: Array, step: Step, weight: Array) -> Array:
    """Sums of products, `(N, O, H', W')`: one product of matrices for each position in the kernel."""
    (top, left), (down, right), (row_gap, column_gap) = step["padding"], step["stride"], step["dilation"]
    groups = step["groups"]
    x = np.pad(x - step["zero"], ((0, 0), (0, 0), (top, top), (left, left))).astype(np.float64)
    n, channels, height, width = x.shape
    outputs, _, rows, columns = weight.shape
    height = (height - row_gap * (rows - 1) - 1) // down + 1
    width = (width - column_gap * (columns - 1) - 1) // right + 1
    weight = weight.reshape(groups, outputs // groups, channels // groups, rows, columns).astype(np.float64)
    total = np.zeros((n, groups, outputs // groups, height * width))
    for i in range(rows):
        for j in range(columns):
            part = x[:, :, i * row_gap :, j * column_gap :][:, :, ::down, ::right][:, :, :height, :width]
            part = np.ascontiguousarray(part).reshape(n, groups, channels // groups, height * width)
            total += weight[..., i, j] @ part
    return total.astype(np.int64).reshape(n, outputs, height, width)


def pool(x: Array, step: Step, combine: Callable[[list[Array]], Array], edge: int) -> Array:
    """The largest code or the sum of each window; `edge` is the code of the padding."""
    (rows, columns), (down, right), (top, left) = step["kernel"], step["stride"], step["padding"]
    x = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=edge)
    height, width = (x.shape[2] - rows) // down + 1, (x.shape[3] - columns) // right + 1
    parts = [x[:, :, i::down, j::right][:, :, :height, :width] for i in range(rows) for j in range(columns)]
    return combine(parts)


def rescale(inputs: list[Array], step: Step, multiplier: Array, bias: Array, shift: Array) -> Array:
    """`(sum of inputs * multiplier + bias * 2^lift) / (divisor * 2^shift)`, half to even, on the grid."""
    total = bias.astype(np.int64).reshape(-1, 1, 1) << step["lift"]
    for x, factor, zero in zip(inputs, multiplier, step["zeros"], strict=True):
        total = total + (x.astype(np.int64) - zero) * factor.reshape(-1, 1, 1)
    whole = np.int64(step["divisor"]) << shift.reshape(-1, 1, 1)
    codes = total // whole
    rest = total - codes * whole
    codes += (rest > whole - rest) | ((rest == whole - rest) & (codes % 2 == 1))
    return np.clip(codes + step["zero"], step["low"], step["high"])


def run(steps: list[Step], arrays: dict[str, Array], codes: Array) -> list[Array]:
    """The integers of each step for input codes `(N, C, H, W)`; the last are logits, `(N, classes, 1, 1)`."""
    values = [codes.reshape(-1, *steps[0]["shape"])]
    for number, step in enumerate(steps[1:], 1):
        inputs = [values[i] for i in step["inputs"]]
        own = [arrays[f"{number}.{name}"] for name in step["arrays"]]
        if step["op"] == "conv":
            values.append(conv(inputs[0], step, *own))
        elif step["op"] == "max_pool":
            values.append(pool(inputs[0], step, np.maximum.reduce, step["low"]))
        elif step["op"] == "sum_pool":
            values.append(pool(inputs[0].astype(np.int64) - step["zero"], step, np.add.reduce, 0))
        elif step["op"] == "flatten":
            values.append(inputs[0].reshape(len(codes), -1, 1, 1))
        else:
            values.append(rescale(inputs, step, *own))
    return values


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python reader.py NETWORK.npz INPUT.npy  (N, C, H, W): uint8 pixels, or int64 codes")
    network, weights = load(sys.argv[1])
    codes, file = np.load(sys.argv[2]), np.load(sys.argv[1])
    codes = file["pixel_codes"][codes] if codes.dtype == np.uint8 else codes
    print(*run(network, weights, codes)[-1].reshape(-1, network[-1]["channels"]).argmax(1))

"""What windows over an image give: how many there are, and how large their sums may be."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qat.export.onnx.values import Codes, Reals, Shape


def pool_settings(pool: Any) -> dict[str, list[int]]:
    """Kernel, stride and padding of a pooling module, height and width each."""

    def pair(x: Any) -> list[int]:
        return [x, x] if isinstance(x, int) else list(x)

    return {"kernel": pair(pool.kernel_size), "stride": pair(pool.stride), "padding": pair(pool.padding)}


def window_size(shape: Shape, kernel: Any, settings: dict[str, Any]) -> tuple[int, int]:
    """Height and width of what a window gives."""
    dilation = settings.get("dilation", [1, 1])
    height, width = (
        (size + 2 * pad - gap * (k - 1) - 1) // stride + 1
        for size, pad, gap, k, stride in zip(
            shape[1:], settings["padding"], dilation, kernel, settings["stride"], strict=True
        )
    )
    return height, width


def largest_sums(weight: NDArray[np.int64], x: Codes) -> Reals:
    """The largest magnitude that a sum, or a part of it in whatever order, may reach, for each channel."""
    low, high = x.low - x.zero, x.high - x.zero
    rows = weight.reshape(len(weight), -1).astype(np.float64)
    products = np.stack([rows * low, rows * high])
    above, below = products.max(axis=0).clip(min=0).sum(axis=1), products.min(axis=0).clip(max=0).sum(axis=1)
    largest: Reals = np.maximum(above, -below)
    return largest

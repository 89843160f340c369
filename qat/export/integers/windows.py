"""Windows of convolutions and pools: their size and number, and how large their sums may be."""

from typing import Any

import numpy as np

from qat.export.integers.program import IntArray
from qat.export.integers.values import FloatArray, QuantizedTensor, Shape


def pool_settings(pool: Any) -> dict[str, list[int]]:
    """Kernel, stride and padding of a pooling module, each as [height, width]."""

    def pair(x: Any) -> list[int]:
        return [x, x] if isinstance(x, int) else list(x)

    return {"kernel": pair(pool.kernel_size), "stride": pair(pool.stride), "padding": pair(pool.padding)}


def output_shape(channels: int, shape: Shape, kernel: Any, settings: dict[str, Any]) -> Shape:
    """`(channels, H', W')` of a convolution or a pool over an image of a shape."""
    height, width = (
        (size + 2 * pad - dilation * (k - 1) - 1) // stride + 1
        for size, pad, dilation, k, stride in zip(
            shape[1:],
            settings["padding"],
            settings.get("dilation", [1, 1]),
            kernel,
            settings["stride"],
            strict=True,
        )
    )
    return channels, height, width


def largest_sums(weight: IntArray, x: QuantizedTensor) -> FloatArray:
    """The largest magnitude of a sum, or of a partial sum in any order, for each output channel."""
    low, high = x.low - x.zero, x.high - x.zero
    rows = weight.reshape(len(weight), -1).astype(np.float64)
    products = np.stack([rows * low, rows * high])
    above, below = products.max(axis=0).clip(min=0).sum(axis=1), products.min(axis=0).clip(max=0).sum(axis=1)
    largest: FloatArray = np.maximum(above, -below)
    return largest

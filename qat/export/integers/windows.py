"""Windows of convolutions and pools: their size and number, and how large their sums may be."""

from typing import Any

import numpy as np

from qat.export.integers.program import IntArray
from qat.export.integers.values import FloatArray, QuantizedTensor, Shape


def pool_settings(pool: Any) -> dict[str, list[int]]:
    """Kernel, stride and padding of a pooling module, each as [height, width]."""
    given = {"kernel": pool.kernel_size, "stride": pool.stride, "padding": pool.padding}
    return {name: np.broadcast_to(x, 2).tolist() for name, x in given.items()}


def output_shape(channels: int, shape: Shape, kernel: Any, settings: dict[str, Any]) -> Shape:
    """`(channels, H', W')` of a convolution or a pool over an image of a shape."""
    reach = np.array(settings.get("dilation", [1, 1])) * (np.array(kernel) - 1)
    size = np.array(shape[1:]) + 2 * np.array(settings["padding"]) - reach - 1
    height, width = (size // settings["stride"] + 1).tolist()
    return channels, height, width


def largest_sums(weight: IntArray, x: QuantizedTensor) -> FloatArray:
    """The largest magnitude of a sum, or of a partial sum in any order, for each output channel."""
    low, high = x.low - x.zero, x.high - x.zero
    rows = weight.reshape(len(weight), -1).astype(np.float64)
    products = np.stack([rows * low, rows * high])
    above, below = products.max(axis=0).clip(min=0).sum(axis=1), products.min(axis=0).clip(max=0).sum(axis=1)
    largest: FloatArray = np.maximum(above, -below)
    return largest

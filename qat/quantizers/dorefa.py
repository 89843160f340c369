"""Weights mapped by tanh to the fixed range [-1, 1]."""

import torch
from torch import Tensor

from qat.quantizers.observers import largest_magnitude, other_axes
from qat.quantizers.scale import SMALLEST, Scale, check_shape


class DorefaScale(Scale):
    """`1 / high`, for weights that first become `tanh(w) / max |tanh(w)|`.

    Forward: `u = tanh(w) / max |tanh(w)|`, in [-1, 1], is quantized with the scale `1 / high`. Gradient: the
    true one of u, also through the maximum (a constant while frozen), times that of the rounding. The maximum
    is that of the tensor, as in the paper, or with an axis that of each channel.

    The paper's grid of `2^bits - 1` steps from -1 to 1 has no zero; the grid `-high..high` has one. For one
    bit, use `ObservedScale` with the observer `mean`, as the paper does.

    Args:
        high, axis: as for `Scale`.
        shape: of the maximum: `()`, or `(O, 1, 1, 1)`.

    Buffers: `largest`, float32: max |tanh(w)| of the current weight in every mode, until frozen.

    Source: Zhou et al. 2016, "DoReFa-Net", section 2.3, equation 9.
    """

    statistic = "largest"
    largest: Tensor

    def __init__(self, high: int, shape: tuple[int, ...] = (), axis: int | None = None) -> None:
        super().__init__(high, axis)
        check_shape(shape, axis)
        self.register_buffer("largest", torch.ones(shape, dtype=torch.float32))

    @property
    def value(self) -> Tensor:
        return torch.full_like(self.largest, 1 / self.high)

    def measure(self, x: Tensor) -> Tensor:
        if x.numel() == 0:
            return torch.full_like(self.largest, torch.nan)
        return largest_magnitude(x, self.axis, self.high).tanh().clamp(min=SMALLEST)

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        if x.numel() == 0:
            return x
        y = x.tanh()
        if self.frozen:
            return y / self.largest.to(y.dtype)
        largest = y.abs().amax(other_axes(x, self.axis), keepdim=self.axis is not None)
        return y / largest.clamp(min=SMALLEST)

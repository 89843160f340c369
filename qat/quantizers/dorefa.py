"""Weights squeezed by tanh onto the fixed range [-1, 1]."""

import torch
from torch import Tensor

from qat.quantizers.observers import largest_magnitude, other_axes
from qat.quantizers.scale import SMALLEST, Scale


class DorefaScale(Scale):
    """`1 / high`, for weights that first become `tanh(w) / max |tanh(w)|`.

    Forward: `u = tanh(w) / max |tanh(w)|`, quantized with the scale `1 / high`: the weight in use lies in
    [-1, 1]. Gradient: the true one of u, through the maximum as well (a constant while frozen), times the
    rounding's. The maximum is the tensor's, as in the paper, or with an axis that of each channel.

    The paper's grid of `2^bits - 1` steps from -1 to 1 has no zero. This one, `-high..high`, has. One bit
    takes the mean magnitude instead: the observer `mean`.

    Args:
        high: the largest code of the grid.
        shape: of the maximum: `()`, or `(O, 1, 1, 1)`.
        axis: the channel axis that has its own maxima; None: one for the tensor.

    Buffers: `largest`, float32: max |tanh(w)|, that of the weight at hand in every mode until frozen.

    Source: Zhou et al. 2016, "DoReFa-Net", section 2.3, equation 9.
    """

    statistic = "largest"
    largest: Tensor

    def __init__(self, high: int, shape: tuple[int, ...] = (), axis: int | None = None) -> None:
        super().__init__()
        self.high = high
        self.axis = axis
        self.register_buffer("largest", torch.ones(shape))

    @property
    def value(self) -> Tensor:
        """The scale, a constant. Shape: that of the maximum."""
        return torch.full_like(self.largest, 1 / self.high)

    def measure(self, x: Tensor) -> Tensor:
        """`max |tanh(x)|`; NaN if x is empty or has a NaN."""
        if x.numel() == 0:
            return torch.full_like(self.largest, torch.nan)
        return largest_magnitude(x, self.axis, self.high).tanh().clamp(min=SMALLEST)

    def observe(self, x: Tensor) -> None:
        """Store the maximum of `x`."""
        self.initialize(x)

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        """`tanh(x) / max |tanh(x)|`. Shape: any -> the same."""
        if x.numel() == 0:
            return x
        y = x.tanh()
        if self.frozen:
            return y / self.largest.to(y.dtype)
        largest = y.abs().amax(other_axes(x, self.axis), keepdim=self.axis is not None)
        return y / largest.clamp(min=SMALLEST)

    def forward(self, x: Tensor) -> Tensor:
        return self.value

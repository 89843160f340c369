"""Weights squeezed by tanh onto the fixed range [-1, 1]."""

import torch
from torch import Tensor

from qat.quantizers.observers import largest_magnitude
from qat.quantizers.scale import SMALLEST, Scale


class DorefaScale(Scale):
    """`1 / high`, for weights that become `tanh(w) / max |tanh(w)|` first.

    Forward: `u = tanh(w) / max |tanh(w)|`, quantized with the scale `1 / high`: the weight in use lies in
    [-1, 1]. Gradient: the true one of u, the maximum included (a constant while frozen), times the
    rounding's. The maximum is the tensor's, as in the paper, or with an axis each channel's own.

    The paper's grid of `2^bits - 1` steps from -1 to 1 has no zero; here it is the grid `-high..high`, which
    has. For one bit it takes the mean magnitude: the observer `mean`.

    Args:
        high: the largest code of the grid.
        shape: of the maximum: `()`, or `(O, 1, 1, 1)`.
        axis: the channel axis that has its own maxima; None: one for the tensor.

    Buffers: `largest`, float32: max |tanh(w)|, which follows the weight in every mode until frozen;
        `frozen`, bool.

    Source: Zhou et al. 2016, "DoReFa-Net", section 2.3, equation 9.
    """

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

    def start(self, x: Tensor) -> None:
        """Store the maximum of `x`."""
        self.observe(x)

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Store the maximum of `x`."""
        if x.numel() == 0:
            return
        new = largest_magnitude(x, self.axis, self.high).tanh().clamp(min=SMALLEST)
        self.largest.copy_(torch.where(new.isnan() | self.frozen, self.largest, new))

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        """`tanh(x) / max |tanh(x)|`. Shape: any -> the same."""
        if x.numel() == 0:
            return x
        y = x.tanh()
        others = [a for a in range(x.dim()) if self.axis is None or a != self.axis % x.dim()]
        largest = y.abs().amax(others, keepdim=self.axis is not None).clamp(min=SMALLEST)
        return y / torch.where(self.frozen, self.largest.to(y.dtype), largest)

    def forward(self, x: Tensor) -> Tensor:
        """The scale for `x`. Shape: any -> that of the maximum."""
        return self.value

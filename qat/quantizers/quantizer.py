"""The quantizer: a grid, where the scale comes from, and a rounding; three independent choices."""

from typing import Any

import torch
from torch import Tensor, nn

from qat.gradients import Rounding, clamp, round_ste, round_stochastic
from qat.quantizers.grid import IntGrid


class _Divide(torch.autograd.Function):
    """`x / scale` and, with `_Multiply`, gradients in units of the values throughout.

    The true factors `1 / scale` here and `scale` there cancel in the product, but not in floating point:
    left out, the gradient through a quantizer is `g` to the last bit.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        return x / scale

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g, None


class _Multiply(torch.autograd.Function):
    """`code * scale`; see `_Divide`."""

    @staticmethod
    def forward(ctx: Any, code: Tensor, scale: Tensor) -> Tensor:
        return code * scale

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g, None


class Quantizer(nn.Module):
    """Rounds a tensor to a grid: `value = clamp(round(x / scale), low, high) * scale`.

    Gradient of x: `g` where `low <= round(x / scale) <= high`, times the factor of the rounding, else 0 (as
    `torch.fake_quantize_per_tensor_affine`). On the grid {-1, +1}, whose codes are two apart, n = round((x /
    scale - 1) / 2) takes the place of the rounding: the value is `(2 clamp(n, -1, 0) + 1) * scale`, and the
    gradient passes where `-1 <= n <= 0`. In training mode `forward` observes the tensor first and uses
    the scale just updated; in eval mode nothing moves. Codes are computed in float32 at least, also under
    autocast.

    Args:
        grid: the integers allowed.
        scale: a module `scale(x) -> Tensor` with `observe(x)` and `start(x)`: `ObservedScale`.
        rounding: any rounding of `qat.gradients`, or your own; it sees `x / scale`. The stochastic one rounds
            half to even in eval mode.

    Shape: any -> the same, in the dtype and memory format of x. The scale broadcasts against x.
    Buffers: `ends`, int64 `(3,)`: bits, low and high, compared when a state is loaded.
    """

    ends: Tensor

    def __init__(self, grid: IntGrid, scale: nn.Module, rounding: Rounding = round_ste) -> None:
        super().__init__()
        self.grid = grid
        self.scale = scale
        self.rounding = rounding
        self.register_buffer("ends", torch.tensor([grid.bits, grid.low, grid.high]))

    def forward(self, x: Tensor) -> Tensor:
        """Shape: any -> the same, values on the grid."""
        if self.training:
            self.observe(x)
        scale = self.scale(x)
        code = self._code(_Divide.apply(x.to(torch.promote_types(x.dtype, torch.float32)), scale))
        value: Tensor = _Multiply.apply(code, scale)
        return value.to(x.dtype)

    def observe(self, x: Tensor) -> None:
        """Let the scale see one batch: the only place where a quantizer's state moves."""
        self.scale.observe(x.detach())  # type: ignore[operator]  # nn.Module hides its methods' types

    @torch.no_grad()
    def codes(self, x: Tensor) -> Tensor:
        """The integers, with the scale as it is now; nothing moves. Shape: any -> the same, int32."""
        return self._code(x.to(torch.promote_types(x.dtype, torch.float32)) / self.scale(x)).int()

    def _code(self, v: Tensor) -> Tensor:
        low, high, step = self.grid.low, self.grid.high, self.grid.step
        if step == 1:
            return clamp(self._round(v), low, high)
        # {-1, +1}: the nearest odd number is 2 n + 1 with n = round((v - 1) / 2); powers of two stay exact.
        return 2 * clamp(self._round((v - 1) / 2), (low - 1) / 2, (high - 1) / 2) + 1

    def _round(self, v: Tensor) -> Tensor:
        # What is deployed is deterministic, so evaluation is too.
        if self.rounding is round_stochastic and not self.training:
            return round_ste(v)
        return self.rounding(v)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        stored = state_dict.get(prefix + "ends")
        if stored is not None and stored.tolist() != self.ends.tolist():
            raise ValueError(
                f"{prefix.rstrip('.')}: the state to load has {_describe(*stored.tolist())}, the model has "
                f"{_describe(*self.ends.tolist())}; set the model's bits to those of the state"
            )
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"{self.grid}, rounding={getattr(self.rounding, '__name__', self.rounding)}"


def _describe(bits: int, low: int, high: int) -> str:
    return f"{bits} bits ({low}..{high})"

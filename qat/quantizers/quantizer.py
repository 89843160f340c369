"""The quantizer: a grid, where the scale comes from, and a rounding; three independent choices."""

from typing import Any

import torch
from torch import Tensor, nn

from qat.gradients import Rounding, clamp, round_ste, round_stochastic
from qat.quantizers import kernels
from qat.quantizers.fused import FakeQuantize, FakeQuantizeLearned
from qat.quantizers.grid import IntGrid
from qat.quantizers.scale import Scale
from qat.quantizers.units import Divide, Multiply


class _ClampForward(torch.autograd.Function):
    """Forward: `min(max(x, low), high)`. Gradient: `g` everywhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        return g, None, None


class Quantizer(nn.Module):
    """Rounds a tensor to a grid: `value = clamp(round(x / scale), low, high) * scale`.

    Gradient of x: `g` where `low <= round(x / scale) <= high`, times the factor of the rounding, else 0 (as
    `torch.fake_quantize_per_tensor_affine`). On the grid {-1, +1}, whose codes are two apart, n = round((x /
    scale - 1) / 2) takes the place of the rounding: the value is `(2 clamp(n, -1, 0) + 1) * scale`, and the
    gradient passes where `-1 <= n <= 0`. A scale may change this: clamp before it rounds, let the gradient
    pass everywhere, transform x first, or have a zero point z, with `code = clamp(round(x / scale) + z, low,
    high)` and `value = (code - z) * scale`. In training mode `forward` observes the tensor first and uses
    the scale just updated; in eval mode nothing moves. Codes are computed in float32 at least, also under
    autocast.

    Args:
        grid: the integers allowed.
        scale: how large one code is: `ObservedScale`, `LearnedScale`, ...
        rounding: any rounding of `qat.gradients`, or your own; it sees `x / scale`. The stochastic one rounds
            half to even in eval mode.

    Shape: any -> the same, in the dtype and memory format of x. The scale broadcasts against x.
    Attributes: `active`: False: x is returned unchanged and nothing is observed.
    Buffers: `ends`, int64 `(3,)`: bits, low and high, compared when a state is loaded.
    """

    ends: Tensor

    def __init__(self, grid: IntGrid, scale: Scale, rounding: Rounding = round_ste) -> None:
        super().__init__()
        self.grid = grid
        self.scale = scale
        self.rounding = rounding
        self.active = True
        self.register_buffer("ends", torch.tensor([grid.bits, grid.low, grid.high]))

    def forward(self, x: Tensor, relu: bool = False) -> Tensor:
        """Shape: any -> the same, values on the grid.

        Args:
            x: what is quantized.
            relu: quantize `max(x, 0)`. Value and gradient are those of `quantizer(relu(x))`, but nothing is
                kept of the ReLU where one Function does it all.
        """
        if not self.active:
            return x.relu() if relu else x
        if self.training:
            self.observe(x, relu)
        if self._is_fused() and not (relu and self.scale.follows):
            return self._fused(x, relu)
        steps, scale, _ = self._steps(x.relu() if relu else x)
        value: Tensor = Multiply.apply(steps, scale)
        return value.to(x.dtype)

    def observe(self, x: Tensor, relu: bool = False) -> None:
        """Let the scale see one batch, or `max(x, 0)`: the only place where a quantizer's state moves."""
        if self.active:
            seen = self.scale.glance(x.detach())
            self.scale.observe(seen.relu() if relu else seen)

    def freeze(self) -> None:
        """From now on the scale moves no more, neither with the batches nor with the weight."""
        self.scale.freeze()

    def unfreeze(self) -> None:
        """Undo `freeze`."""
        self.scale.unfreeze()

    @torch.no_grad()
    def codes(self, x: Tensor) -> Tensor:
        """The integers, with the scale as it is now; nothing moves. Shape: any -> the same, int32."""
        training = self.training
        self.eval()  # a weight's scale is that of the weight now, not of the last batch
        steps, _, zero_point = self._steps(x)
        self.train(training)
        return (steps if zero_point is None else steps + zero_point).int()

    def _is_fused(self) -> bool:
        """Whether one Function does it all: the rounding and the scale that are used most."""
        return self._rounding() is round_ste and self.scale.plain and self.grid.step == 1

    def _fused(self, x: Tensor, relu: bool) -> Tensor:
        scale, high = self.scale(x), self.grid.high
        low = max(self.grid.low, 0) if relu else self.grid.low
        value: Tensor
        if not torch.is_grad_enabled():
            return kernels.value(x, scale, low, high)
        if scale.requires_grad:
            value = FakeQuantizeLearned.apply(x, scale, low, high, relu)
        else:
            value = FakeQuantize.apply(x, scale, low, high, self.scale.clamps_first, relu)
        return value

    def _steps(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The codes without the zero point, as floats; the scale; the zero point."""
        scale = self.scale(x)
        zero_point = self.scale.zero_point(scale)
        x = self.scale.transform(x.to(torch.promote_types(x.dtype, torch.float32)), scale)
        v = Divide.apply(x, scale)
        low, high, step = self.grid.low, self.grid.high, self.grid.step
        if zero_point is not None:
            return clamp(self._rounding()(v), low - zero_point, high - zero_point), scale, zero_point
        if step == 1:
            return self._on_grid(v, low, high), scale, None
        # {-1, +1}: the nearest odd number is 2 n + 1 with n = round((v - 1) / 2); powers of two stay exact.
        return 2 * self._on_grid((v - 1) / 2, (low - 1) / 2, (high - 1) / 2) + 1, scale, None

    def _on_grid(self, v: Tensor, low: float, high: float) -> Tensor:
        if self.scale.passes_outside:
            limited: Tensor = _ClampForward.apply(v, low, high)
            return self._rounding()(limited)
        if self.scale.clamps_first:
            return self._rounding()(clamp(v, low, high))
        return clamp(self._rounding()(v), low, high)

    def _rounding(self) -> Rounding:
        # What is deployed is deterministic, so evaluation is too.
        return round_ste if self.rounding is round_stochastic and not self.training else self.rounding

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

"""The quantizer: a grid, the source of its scale, and a rounding; three independent choices."""

import json
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from qat.gradients import (
    CLAMPS,
    OutsideName,
    Rounding,
    clamp,
    round_ste,
    round_stochastic,
    straight_through,
)
from qat.module_state import preserve_modes
from qat.quantizers import kernels
from qat.quantizers.fake_quantize import Divide, FakeQuantize, FakeQuantizeLearned, Multiply
from qat.quantizers.grid import IntGrid
from qat.quantizers.parts import check_input, check_output, check_parts, check_unreplaced, state_of
from qat.quantizers.scale import Scale
from qat.quantizers.stored_state import compare, read_extra_state


class Quantizer(nn.Module):
    """Fake-quantizes a tensor: `value = clamp(round(x / scale), low, high) * scale`.

    Gradient of x: `g` where `low <= round(x / scale) <= high`, times the factor of the rounding, else 0 (as
    `torch.fake_quantize_per_tensor_affine`). On a midrise grid, whose codes are the odd numbers, the value is
    `(2 clamp(n, (low - 1) / 2, (high - 1) / 2) + 1) * scale` with `n = round((x / scale - 1) / 2)`, and the
    gradient passes where n is not clamped. `outside` chooses the gradient beyond the outer codes. A scale may
    clamp before the rounding, transform x first, or have a zero point (`AsymmetricScale`).

    In training mode `forward` observes the tensor first and uses the updated scale; in eval mode the state
    does not change, and a scale that is `unset` causes one warning. Codes are computed in float32 or wider,
    also under autocast.

    Args:
        grid: the allowed integers.
        scale: the source of the scale: `ObservedScale`, `LearnedScale`, ...
        rounding: from `qat.gradients`, or user-defined; its argument is `x / scale`. In eval mode
            `round_ste` replaces `round_stochastic`.
        outside: the gradient of x where it is clamped, as a multiple of the rounding's: `masked`, 0;
            `passed`, 1; `fading`, `exp(-d)` at the distance d, in codes, from the outermost one.

    Shape: any -> the same, in the dtype and memory format of x. The scale broadcasts against x.

    Raises:
        ValueError: grid is no `IntGrid`, scale no `Scale` made for its `high`, or rounding no function; a
            scale without `measure`, `value` or a registered statistic; at the first call, an x that is no
            floating-point tensor or has other channels, and a scale that replaces its buffers or changes
            them with gradients on.

    The state is that of the scale, and an entry with the grid, the kind of the scale, `enabled` and whether
    the scale is frozen. Loading a state of another grid or kind raises a ValueError.
    """

    enabled: bool  # if False, `forward` returns x unchanged, and nothing is observed
    _is_checked: bool = False  # the first call has found no fault in the scale
    compiled_on: str | None  # the device type where `compile_kernels` lets large tensors use its kernels

    def __init__(
        self,
        grid: IntGrid,
        scale: Scale,
        rounding: Rounding = round_ste,
        outside: OutsideName = "masked",
    ) -> None:
        super().__init__()
        check_parts(grid, scale, rounding, outside)
        self.grid = self.own_grid = grid
        self.scale = scale
        self.rounding = rounding
        self.outside = outside
        self.enabled = True
        self.compiled_on = None
        self.register_load_state_dict_pre_hook(check_state)

    def forward(self, x: Tensor, relu: bool = False) -> Tensor:
        """The values on the grid; with `relu`, those of `quantizer(x.relu())`, usually with less memory."""
        if not self.enabled:
            return x.relu() if relu else x
        if not torch.compiler.is_compiling() and not self._is_checked:
            return self._first_forward(x, relu)
        if self.training:
            self.observe(x, relu)
        elif not torch.compiler.is_compiling() and self.scale.unset is not None:
            self._warn_unset()
        if self._is_one_function(relu):
            scale = self.scale(x)
            if self.outside == "masked" or not scale.requires_grad:
                return self._fused(x, scale, relu)
        codes, scale, _ = self._composed(x.relu() if relu else x)
        value: Tensor = Multiply.apply(codes, scale)
        return value.to(x.dtype)

    def _first_forward(self, x: Tensor, relu: bool) -> Tensor:
        check_input(self.scale, x)
        before = state_of(self.scale)
        self._is_checked = True
        try:
            value = Quantizer.forward(self, x, relu)
            check_unreplaced(self.scale, before)
            check_output(self.rounding, x, value)
        except Exception:
            self._is_checked = False
            raise
        return value

    @torch.no_grad()  # whatever the scale does: a graph in its state would make the next backward fail
    def observe(self, x: Tensor, relu: bool = False) -> None:
        """Update the scale by one batch, or by `max(x, 0)`; a quantizer's state changes only here."""
        if self.enabled and not self.scale.frozen:
            before = None
            if not torch.compiler.is_compiling() and not self._is_checked:
                check_input(self.scale, x)
                before = state_of(self.scale)
            sample = self.scale.subsample(x.detach())
            self.scale.observe(sample.relu() if relu else sample)
            self.scale.unset = None  # not after a test of it, for which torch.compile would compile twice
            if before is not None:
                check_unreplaced(self.scale, before)

    def widen(self, bits: int | None) -> None:
        """Run with more bits for a while, with a grid over the same range; None: with its own bits again.

        Bits that are not more than its own are its own. An observed scale of a weight is measured anew, any
        other is multiplied by the ratio of the largest codes.
        """
        own = self.own_grid
        grid = own if bits is None or bits <= own.bits else own.widened(bits)
        if grid != self.grid:
            self.scale.fit(grid)
            self.grid = grid

    def freeze(self) -> None:
        """Keep the scale as it is: neither batches nor the weight nor the optimizer change it."""
        self.scale.freeze()

    def unfreeze(self) -> None:
        """Undo `freeze`."""
        self.scale.unfreeze()

    @torch.no_grad()
    def codes(self, x: Tensor) -> Tensor:
        """The integers for the current scale; no state changes. Shape: any -> the same, int32."""
        check_input(self.scale, x)
        with preserve_modes(self):
            self.eval()  # so that a dynamic scale is measured on x
            codes, _, zero_point = self._composed(x)
        return (codes if zero_point is None else codes + zero_point).int()

    @property
    def effective_rounding(self) -> Rounding:
        """The rounding in the current mode; in eval mode it is deterministic, as in the deployed network."""
        return round_ste if self.rounding is round_stochastic and not self.training else self.rounding

    def uses_compiled_kernels(self, x: Tensor) -> bool:
        """Whether this tensor goes through the compiled kernels."""
        return self.compiled_on == x.device.type and kernels.is_fusible(x)

    def _warn_unset(self) -> None:
        name, self.scale.unset = self.scale.unset, None
        first = "call unfreeze first, then " if self.scale.frozen else ""
        warnings.warn(
            f"{name}: its scale was never set, so the outputs mean nothing; {first}train the model, load a "
            "trained state, or run it on a batch in training mode",
            stacklevel=3,
        )

    def _is_one_function(self, relu: bool) -> bool:
        if relu and (self.scale.is_dynamic or self.grid.midrise or self.outside != "masked"):
            return False
        return self.effective_rounding is round_ste and self.scale.is_fusible and self.outside != "fading"

    def _fused(self, x: Tensor, scale: Tensor, relu: bool) -> Tensor:
        odd, compiled = self.grid.midrise, self.compiled_on == x.device.type
        low, high = self._bounds
        value: Tensor
        if not torch.is_grad_enabled():
            return kernels.value(x, scale, max(low, 0) if relu else low, high, odd, compiled)
        if self.outside == "passed":
            return straight_through(x, lambda x: kernels.value(x, scale, low, high, odd, compiled))
        low = max(low, 0) if relu else low
        if scale.requires_grad:
            value = FakeQuantizeLearned.apply(x, scale, low, high, odd, relu, compiled)
        else:
            value = FakeQuantize.apply(x, scale, low, high, odd, self.scale.clamps_first, relu, compiled)
        return value

    @property
    def _bounds(self) -> tuple[int, int]:
        """Of n, which is the code, or on a midrise grid the half of `code - 1`."""
        low, high = self.grid.low, self.grid.high
        return ((low - 1) // 2, (high - 1) // 2) if self.grid.midrise else (low, high)

    def _composed(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The codes minus the zero point, as floats; the scale; the zero point."""
        scale = self.scale(x)
        zero_point = self.scale.zero_point(scale)
        x = self.scale.transform(x.to(torch.promote_types(x.dtype, torch.float32)), scale)
        v = Divide.apply(x, scale)
        if zero_point is not None:
            low, high = self.grid.low, self.grid.high
            codes = clamp(self.effective_rounding(v), low - zero_point, high - zero_point)
            return codes, scale, zero_point
        # The odd number nearest to v is 2 n + 1 with n = round((v - 1) / 2); powers of two stay exact.
        n = self._neighbours(v)
        if self.outside == "masked" and not self.scale.clamps_first:
            n = clamp(self.effective_rounding(n), *self._bounds)
        else:
            n = self.effective_rounding(self._clamped(n, x, scale))
        return (2 * n + 1 if self.grid.midrise else n), scale, None

    def _neighbours(self, v: Tensor) -> Tensor:
        return (v - 1) / 2 if self.grid.midrise else v

    def _clamped(self, n: Tensor, x: Tensor, scale: Tensor) -> Tensor:
        if self.outside == "masked" or not scale.requires_grad:
            return CLAMPS[self.outside](n, *self._bounds)
        # Outside, a learned scale has the gradient of the outer code; what passes reaches x alone.
        alone = self._neighbours(Divide.apply(x, scale.detach()))
        nothing = CLAMPS[self.outside](alone, *self._bounds) - clamp(alone, *self._bounds)
        return clamp(n, *self._bounds) + nothing

    def get_extra_state(self) -> Tensor:
        """The meaning of the state, as JSON in bytes. Shape: `(n,)`, uint8."""
        # A tensor, because tools that average, hash or compare the entries of a `state_dict` expect tensors,
        # and because torch promises to load the extra state of older versions for tensors only.
        meaning = {key: getattr(self.own_grid, key) for key in ("bits", "low", "high")}
        meaning |= {"scale": self.scale.kind, "enabled": self.enabled, "frozen": self.scale.frozen}
        if self.grid != self.own_grid:
            meaning["widened"] = self.grid.bits
        return torch.tensor(list(json.dumps(meaning).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Set `enabled`, and freeze or unfreeze the scale; `check_state` has compared the rest."""
        meaning = read_extra_state(state)
        self.enabled = meaning["enabled"]
        grid = self.own_grid.widened(meaning["widened"]) if "widened" in meaning else self.own_grid
        self.grid = grid
        self.scale.take(grid)
        self.scale.unset = None
        (self.freeze if meaning["frozen"] else self.unfreeze)()

    def extra_repr(self) -> str:
        return f"{self.grid}, rounding={getattr(self.rounding, '__name__', self.rounding)}"


def check_state(model: nn.Module, state_dict: Mapping[str, Any], prefix: str = "", *_: Any) -> None:
    """Refuse a state of another grid or kind of scale than a quantizer of the model has: a ValueError.

    As a pre-hook of a model's `load_state_dict` it compares all quantizers before anything is loaded.
    """
    for name, module in model.named_modules(prefix=prefix.removesuffix(".")):
        state = state_dict.get(f"{name}._extra_state" if name else "_extra_state")
        if isinstance(module, Quantizer) and state is not None:  # strict loading reports a missing one
            compare(name, state, module.get_extra_state())

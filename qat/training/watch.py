"""What is counted at one quantizer, on its device: nothing here waits for a value or moves a state."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from qat.quantizers import Quantizer

TURNS = 2  # a weight that turns once has changed its mind, one that turns back again swings


class Activation:
    """Counts the values that a quantizer of activations clips.

    `clipped` is the share whose code `round(x / scale)` (plus the zero point) lies beyond the grid.
    """

    def __init__(self, quantizer: Quantizer) -> None:
        self.quantizer = quantizer
        self._clipped = self._seen = torch.zeros((), dtype=torch.int64)
        self.scale = torch.zeros(())

    @torch.no_grad()
    def look(
        self, module: nn.Module, inputs: tuple[Tensor, ...], options: dict[str, bool], output: Tensor
    ) -> None:
        """A forward hook of the quantizer, with its arguments by name."""
        x, grid = inputs[0], self.quantizer.grid
        if options.get("relu"):
            x = x.relu()
        scale = self.quantizer.scale(x)
        zero_point = self.quantizer.scale.zero_point(scale)
        shift = 0.0 if zero_point is None else zero_point
        low, high = (grid.low - grid.step / 2 - shift) * scale, (grid.high + grid.step / 2 - shift) * scale
        self._clipped = self._clipped.to(x.device) + ((x < low) | (x > high)).sum()
        self._seen = self._seen + x.numel()
        self.scale = scale.mean()

    def shares(self) -> dict[str, Tensor]:
        share = self._clipped / self._seen.to(self._clipped.device)
        return {"clipped": share, "activation_scale": self.scale}


class Weight:
    """Follows the codes of a weight from look to look.

    `unchanged` is the share of codes that were the same at every look, `oscillating` that of codes whose
    direction changed at least `TURNS` times.
    """

    def __init__(self, quantizer: Quantizer, weight: Callable[[], Tensor]) -> None:
        self.quantizer = quantizer
        self.weight = weight  # what is quantized now: where BatchNorm is folded first, a new tensor each time
        self._codes = self._now()
        self._direction = torch.zeros_like(self._codes)
        self._turns = torch.zeros_like(self._codes, dtype=torch.uint8)

    def look(self) -> None:
        codes = self._now()
        direction = (codes > self._codes).to(codes.dtype) - (codes < self._codes).to(codes.dtype)
        turned = direction * self._direction < 0
        self._turns += turned & (self._turns < TURNS)
        self._direction = torch.where(direction == 0, self._direction, direction)
        self._codes = codes

    def shares(self) -> dict[str, Tensor]:
        return {
            "unchanged": (self._direction == 0).float().mean(),
            "oscillating": (self._turns >= TURNS).float().mean(),
            "weight_scale": self._scale.mean(),
        }

    @torch.no_grad()
    def _now(self) -> Tensor:
        # Not `quantizer.codes`: a rounding that draws random numbers would move the generator, and round
        # differently each time. All others round half to even.
        grid, scale = self.quantizer.grid, self.quantizer.scale
        weight = self.weight()
        self._scale = scale(weight)
        v = scale.transform(weight.float(), self._scale) / self._scale
        codes = 2 * ((v - 1) / 2).round() + 1 if grid.step == 2 else v.round()
        return codes.clamp(grid.low, grid.high).to(torch.int16)

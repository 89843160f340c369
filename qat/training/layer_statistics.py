"""Statistics of one quantizer over an epoch. Updating them neither waits for the device nor moves a state."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from qat.quantizers import IntGrid, Quantizer

TURNS = 2  # a weight that turns once may have settled elsewhere; one that turns again oscillates


class ActivationStatistics:
    """Counts the activations whose code `round(x / scale)` (plus the zero point) is beyond the grid."""

    def __init__(self, quantizer: Quantizer) -> None:
        self.quantizer = quantizer
        self._clipped = self._seen = torch.zeros((), dtype=torch.int64)
        self._scale = torch.zeros(())

    @torch.no_grad()
    def update(
        self, module: nn.Module, inputs: tuple[Tensor, ...], options: dict[str, bool], output: Tensor
    ) -> None:
        """Count one batch; a forward hook of the quantizer that takes keyword arguments."""
        x, grid = inputs[0], self.quantizer.grid
        if options.get("relu"):
            x = x.relu()
        scale = self.quantizer.scale(x)
        zero_point = self.quantizer.scale.zero_point(scale)
        shift = 0.0 if zero_point is None else zero_point
        low, high = (grid.low - grid.step / 2 - shift) * scale, (grid.high + grid.step / 2 - shift) * scale
        self._clipped = self._clipped.to(x.device) + ((x < low) | (x > high)).sum()
        self._seen = self._seen + x.numel()
        self._scale = scale.mean()

    def compute(self) -> dict[str, Tensor]:
        """`clipped`: the share of clipped values, 0..1; `activation_scale`: the mean of the last scale."""
        clipped = self._clipped / self._seen.to(self._clipped.device)
        return {"clipped": clipped, "activation_scale": self._scale}


class WeightStatistics:
    """Compares the codes of a weight from update to update.

    `weight` returns what the quantizer reads. If BatchNorm is folded first, this is a new tensor each time.
    """

    def __init__(self, quantizer: Quantizer, weight: Callable[[], Tensor]) -> None:
        self.quantizer = quantizer
        self.weight = weight
        self._codes = self._current_codes()
        self._direction = torch.zeros_like(self._codes)
        self._turns = torch.zeros_like(self._codes, dtype=torch.uint8)

    def update(self) -> None:
        """Compare the codes of the weight as it is now with those of the update before."""
        codes = self._current_codes()
        direction = (codes > self._codes).to(codes.dtype) - (codes < self._codes).to(codes.dtype)
        turned = direction * self._direction < 0
        self._turns += turned & (self._turns < TURNS)
        self._direction = torch.where(direction == 0, self._direction, direction)
        self._codes = codes

    def compute(self) -> dict[str, Tensor]:
        """Shares of the weights, 0..1, that kept their code or turned; the mean of the last scale."""
        return {
            "unchanged": (self._direction == 0).float().mean(),
            "oscillating": (self._turns >= TURNS).float().mean(),
            "weight_scale": self._scale.mean(),
        }

    @torch.no_grad()
    def _current_codes(self) -> Tensor:
        weight = self.weight()
        self._scale = self.quantizer.scale(weight)
        return nearest_codes(self.quantizer, weight, self._scale).to(torch.int16)


def nearest_codes(quantizer: Quantizer, weight: Tensor, scale: Tensor) -> Tensor:
    """The codes of a weight, rounded half to even, as floats. Shape: any -> the same."""
    # Not `quantizer.codes`: a random rounding would move the generator, and round differently each time.
    # All other roundings round half to even, as here.
    return nearest(quantizer.scale.transform(weight.float(), scale) / scale, quantizer.grid)


def nearest(v: Tensor, grid: IntGrid) -> Tensor:
    """The code of a grid that is nearest to each number. Shape: any -> the same."""
    codes = 2 * ((v - 1) / 2).round() + 1 if grid.step == 2 else v.round()
    return codes.clamp(grid.low, grid.high)

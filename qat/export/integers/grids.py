"""From sums to grids: the rescalings of a program, and what is proved of its sums."""

import math

import numpy as np
import torch

from qat.export.integers.multipliers import Multipliers, multipliers
from qat.export.integers.program import LARGEST_EXACT, LARGEST_SUM, Accumulator, Program, Step
from qat.export.onnx.checks import layer_of, scale_of
from qat.export.onnx.values import Codes, Reals, Shape, Sum, Value, as_sum
from qat.quantizers import Quantizer


class Grids:
    """Appends rescalings to a program.

    Args:
        program: what they are appended to.
        shape: `(C, H, W)` of one image.
    """

    def __init__(self, program: Program, shape: Shape) -> None:
        self.program, self.shape = program, shape

    def quantize(self, quantizer: Quantizer, x: Value | None, name: str) -> Codes:
        """A tensor on the grid of a quantizer; None is the network's input.

        Raises:
            ValueError: the input is to lie on two grids, or numbers have too many bits.
        """
        scale = scale_of(quantizer)
        zero_point = quantizer.scale.zero_point(scale)
        zero, grid = 0 if zero_point is None else int(zero_point), quantizer.grid
        if x is None:
            return self._input(name, float(scale), zero, grid.low, grid.high)
        value = as_sum(x)
        low, high = grid.low, grid.high
        if value.low > -math.inf:
            low = max(low, zero + round(float(torch.tensor(value.low) / scale)))
        if value.high < math.inf:
            high = min(high, zero + round(float(torch.tensor(value.high) / scale)))
        number = self._rescale(value, float(scale), {"zero": zero, "low": low, "high": high}, name)
        return Codes(number, value.shape, float(scale), zero, low, high)

    def fine(self, value: Sum, count: int, layer: str) -> Codes:
        """A tensor that lies on no grid, on one so fine that `count` of its codes just fit an int32."""
        high = (LARGEST_SUM + 1) // (2 << (count - 1).bit_length()) - 1
        low = 0 if value.low >= 0 else -high
        scale = 2.0 ** math.ceil(math.log2(_reach(value))) / (high + 1)
        number = self._rescale(value, scale, {"zero": 0, "low": low, "high": high}, f"{layer}/fine")
        return Codes(number, value.shape, scale, 0, low, high)

    def output(self, value: Sum) -> None:
        """The logits as int32 on one scale: exact where that is possible, else with 31 bits."""
        scale = min(float(np.abs(term.unit).min()) for term in value.terms)
        if not multipliers(value, scale).exact or scale * LARGEST_SUM < _reach(value):
            scale = 2.0 ** (math.ceil(math.log2(_reach(value))) - 30)
        self.program.output_scale = scale
        grid = {"zero": 0, "low": -LARGEST_SUM, "high": LARGEST_SUM, "channels": value.shape[0]}
        self._rescale(value, scale, grid, "output")

    def prove(self, layer: str, bound: Reals, offset: Reals, unit: Reals) -> None:
        """Note what the sums of a layer may reach.

        Args:
            layer: by name.
            bound: the largest magnitude of a sum, or of a part of it, for each channel.
            offset: the bias, for each channel.
            unit: the value of 1, for each channel.

        Raises:
            ValueError: an int32 may overflow.
        """
        largest = int(bound.max())
        if largest > LARGEST_SUM:
            raise ValueError(
                f"{layer}: its sums may reach {largest:,}, more than an int32 holds; give it fewer bits"
            )
        with_bias = bound + np.where(bound > 0, np.abs(offset) / unit, 0)
        exact = bool((with_bias <= LARGEST_EXACT).all())
        self.program.accumulators.append(Accumulator(layer, largest, exact))

    def _input(self, name: str, scale: float, zero: int, low: int, high: int) -> Codes:
        settings = {"scale": scale, "zero": zero, "low": low, "high": high, "shape": list(self.shape)}
        if not self.program.steps:
            self.program.add(Step("input", name, (), self.shape, settings))
            self.program.input_scale = scale
        elif self.program.steps[0].settings != settings:
            first = layer_of(self.program.steps[0].layer)
            raise ValueError(
                f"{layer_of(name)}: integers need one grid for the network's input, but it and {first} "
                "have two"
            )
        return Codes(0, self.shape, scale, zero, low, high)

    def _rescale(self, value: Sum, scale: float, grid: dict[str, int], name: str) -> int:
        try:
            numbers = multipliers(value, scale)
        except ValueError as error:
            raise ValueError(f"{layer_of(name)}: there is no form in integers for what {error}") from error
        if not numbers.exact:
            self.program.rounded.append(layer_of(name))
        elif not _float_is_exact(value, numbers, max(abs(grid["low"]), grid["high"]) + 1):
            self.program.inexact.append(layer_of(name))
        settings = grid | {
            "scale": scale,
            "zeros": [term.zero for term in value.terms],
            "lift": numbers.lift,
            "divisor": numbers.divisor,
        }
        arrays = {"multiplier": numbers.multiplier, "bias": numbers.bias, "shift": numbers.shift}
        inputs = tuple(term.step for term in value.terms)
        return self.program.add(Step("rescale", name, inputs, value.shape, settings, arrays))


def _float_is_exact(value: Sum, numbers: Multipliers, end: int) -> bool:
    """Whether float32 gives the codes of these exact numbers, too.

    Of one term without a division that is what `Accumulator.exact` says. Two exact numbers are added with
    one rounding, which no code sees: below the grid's end the sum has at most 24 bits, above it the code is
    the last one. A quotient is rounded once, too; it is exact where it is a tie, and farther from one than
    its error everywhere else.
    """
    if len(value.terms) == 1 and numbers.divisor == 1:
        return True
    bounds = np.array([term.bound for term in value.terms])
    largest = (np.abs(numbers.multiplier) * bounds).sum(axis=0) + np.abs(numbers.bias)
    finest = end * 2.0 ** float(numbers.shift.max())
    added = largest.max() <= LARGEST_EXACT or (len(value.terms) == 2 and finest <= LARGEST_EXACT)
    divided = numbers.divisor == 1 or finest * 2 * numbers.divisor <= LARGEST_EXACT
    return bool(added and divided)


def _reach(value: Sum) -> float:
    """A magnitude that no element exceeds."""
    parts = [np.abs(term.unit) * term.bound / term.divisor for term in value.terms]
    return max(float((sum(parts) + np.abs(value.offset)).max()), 2.0**-60)

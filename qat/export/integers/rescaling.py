"""The steps of a program that bring sums to a grid, and what is proved of the sums."""

import math

import numpy as np
import torch

from qat.export.integers.multipliers import Multipliers, multipliers
from qat.export.integers.program import LARGEST_EXACT, LARGEST_SUM, Accumulator, Program, Step
from qat.export.integers.values import FloatArray, QuantizedTensor, Shape, Sum, Value, as_sum
from qat.export.readiness import layer_of, scale_of, zero_point_of
from qat.quantizers import Quantizer


class Rescaling:
    """Appends rescalings to a program for images of a shape `(C, H, W)`."""

    def __init__(self, program: Program, shape: Shape) -> None:
        self.program, self.shape = program, shape

    def quantize(self, quantizer: Quantizer, x: Value | None, name: str) -> QuantizedTensor:
        """A tensor on the grid of a quantizer. None stands for the network's input."""
        scale, low, high = scale_of(quantizer), quantizer.grid.low, quantizer.grid.high
        zero = zero_point_of(quantizer, scale)
        if x is None:
            return self._input(name, float(scale), zero, low, high)
        value = as_sum(x)
        if value.low > -math.inf:
            low = max(low, zero + round(float(torch.tensor(value.low) / scale)))
        if value.high < math.inf:
            high = min(high, zero + round(float(torch.tensor(value.high) / scale)))
        return self._rescale(value, float(scale), {"zero": zero, "low": low, "high": high}, name)

    def fine(self, value: Sum, count: int, layer: str) -> QuantizedTensor:
        """A tensor without a quantizer, on the finest grid of which an int32 holds `count` codes."""
        high = (LARGEST_SUM + 1) // (2 << (count - 1).bit_length()) - 1
        low = 0 if value.low >= 0 else -high
        scale = 2.0 ** math.ceil(math.log2(_largest_value(value))) / (high + 1)
        return self._rescale(value, scale, {"zero": 0, "low": low, "high": high}, f"{layer}/fine")

    def output(self, value: Sum) -> None:
        """The logits as int32 with one scale: exact if possible, otherwise with 31 bits."""
        scale = min(float(np.abs(term.unit).min()) for term in value.terms)
        if not multipliers(value, scale).exact or scale * LARGEST_SUM < _largest_value(value):
            scale = 2.0 ** (math.ceil(math.log2(_largest_value(value))) - 30)
        self.program.output_scale = scale
        grid = {"zero": 0, "low": -LARGEST_SUM, "high": LARGEST_SUM, "channels": value.shape[0]}
        self._rescale(value, scale, grid, "output")

    def prove(self, layer: str, bound: FloatArray, offset: FloatArray, unit: FloatArray) -> None:
        """Note how large the sums of a layer may be, and refuse them if an int32 may overflow.

        Each channel has the largest magnitude of a sum or partial sum, a bias, and the value of 1.
        """
        largest = int(bound.max())
        if largest > LARGEST_SUM:
            raise ValueError(
                f"{layer}: its sums may reach {largest:,}, more than an int32 holds; give it fewer bits"
            )
        with_bias = bound + np.where(bound > 0, np.abs(offset) / unit, 0)
        # In float32 a bias between two integers of the sums is added with a rounding, unless it is alone.
        on_grid = (np.abs(offset) / unit % 1 == 0) | (bound == 0)
        exact = bool(((with_bias <= LARGEST_EXACT) & on_grid).all())
        self.program.accumulators.append(Accumulator(layer, largest, exact))

    def _input(self, name: str, scale: float, zero: int, low: int, high: int) -> QuantizedTensor:
        settings = {"scale": scale, "zero": zero, "low": low, "high": high, "shape": list(self.shape)}
        if not self.program.steps:
            self.program.add(Step("input", name, (), self.shape, settings))
        elif self.program.steps[0].settings != settings:
            first = layer_of(self.program.steps[0].layer)
            raise ValueError(
                f"{layer_of(name)}: integers need one grid for the network's input, but {first} has another"
            )
        return QuantizedTensor(0, self.shape, scale, zero, low, high)

    def _rescale(self, value: Sum, scale: float, grid: dict[str, int], name: str) -> QuantizedTensor:
        try:
            numbers = multipliers(value, scale)
        except ValueError as error:
            raise ValueError(f"{layer_of(name)}: there is no form in integers for what {error}") from error
        if not numbers.exact:
            self.program.rounded.append(layer_of(name))
        elif not _is_exact_in_float32(value, numbers, max(abs(grid["low"]), grid["high"]) + 1):
            self.program.inexact.append(layer_of(name))
        zeros = [term.zero for term in value.terms]
        settings = {"scale": scale, "zeros": zeros, "lift": numbers.lift, "divisor": numbers.divisor}
        arrays = {"multiplier": numbers.multiplier, "bias": numbers.bias, "shift": numbers.shift}
        inputs = tuple(term.step for term in value.terms)
        number = self.program.add(Step("rescale", name, inputs, value.shape, grid | settings, arrays))
        return QuantizedTensor(number, value.shape, scale, grid["zero"], grid["low"], grid["high"])


def _is_exact_in_float32(value: Sum, numbers: Multipliers, end: int) -> bool:
    """Whether float32 gives the same codes as these exact numbers. `end`: above the magnitude of every code.

    For one term without a division `Accumulator.exact` answers that. Two exact numbers are added with one
    rounding, which changes no code: below the grid's end the sum has at most 24 bits, above it the code is
    the last one. A quotient is rounded once, too: it is exact if it is a tie, and otherwise farther from a
    tie than its error.
    """
    if len(value.terms) == 1 and numbers.divisor == 1:
        return True
    bounds = np.array([term.bound for term in value.terms])
    largest = (np.abs(numbers.multiplier) * bounds).sum(axis=0) + np.abs(numbers.bias)
    finest = end * 2.0 ** float(numbers.shift.max())
    added = largest.max() <= LARGEST_EXACT or (len(value.terms) == 2 and finest <= LARGEST_EXACT)
    divided = numbers.divisor == 1 or finest * 2 * numbers.divisor <= LARGEST_EXACT
    return bool(added and divided)


def _largest_value(value: Sum) -> float:
    """A magnitude that no element exceeds."""
    parts = [np.abs(term.unit) * term.bound / term.divisor for term in value.terms]
    return max(float((sum(parts) + np.abs(value.offset)).max()), 2.0**-60)

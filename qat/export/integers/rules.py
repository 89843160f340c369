"""What each kind of layer is in integers."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from qat.export.integers.program import Program, Step
from qat.export.integers.rescaling import Rescaling
from qat.export.integers.values import QuantizedTensor, Shape, Sum, SumTerm, Value, as_sum
from qat.export.integers.windows import largest_sums, output_shape, pool_settings
from qat.layers.deployable import FOLDED
from qat.layers.integer_forms import obstacle
from qat.quantizers import Quantizer

PASSED = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, *FOLDED.values())


def unsupported(layer: str, what: str) -> ValueError:
    """The error for an operation that has no form in integers."""
    rule = f"{layer}: there is no form in integers for {what}"
    return ValueError(f"{rule}; export it as ONNX (deployable: true refuses it before the training)")


class Rules:
    """Rules that append the steps of a layer to a program and return its output.

    A rule takes the layer's name, its module and its input. None stands for the network's input before it is
    quantized. `shape` is `(C, H, W)` of one image.
    """

    def __init__(self, program: Program, shape: Shape) -> None:
        self.program = program
        self.rescaling = Rescaling(program, shape)

    def module(self, layer: str, module: nn.Module, x: Value | None) -> Value | None:
        """The output of a module; an error if the module has no form in integers."""
        rules: list[tuple[Any, Callable[[str, Any, Value | None], Value | None]]] = [
            ((nn.Conv2d, nn.Linear), self._product),
            (PASSED, lambda layer, module, x: x),
            ((nn.BatchNorm1d, nn.BatchNorm2d), self._batchnorm),
            ((nn.ReLU, nn.ReLU6, nn.Hardtanh), self._activation),
            (nn.MaxPool2d, self._max_pool),
            ((nn.AvgPool2d, nn.AdaptiveAvgPool2d), self._average),
            (nn.Flatten, self._flatten),
        ]
        if why := obstacle(module):
            raise unsupported(layer, why)
        for kinds, rule in rules:
            if isinstance(module, kinds):
                return rule(layer, module, x)
        raise unsupported(layer, type(module).__name__)

    def _average(self, layer: str, pool: Any, x: Value | None) -> Sum:
        """An average pool: the sum of codes. Its division is part of the next rescaling."""
        if isinstance(pool, nn.AdaptiveAvgPool2d):
            pool = nn.AvgPool2d(_known(layer, x).shape[1:])
        settings = pool_settings(pool)
        count = math.prod(settings["kernel"])
        codes = self._codes(layer, x, count)
        channels, *_ = shape = output_shape(codes.shape[0], codes.shape, settings["kernel"], settings)
        unit, bound = np.full(channels, codes.scale), np.full(channels, float(codes.bound * count))
        self.rescaling.prove(layer, bound, np.zeros(channels), unit)
        step = Step("sum_pool", layer, (codes.step,), shape, settings | {"zero": codes.zero})
        return Sum(shape, (SumTerm(self.program.add(step), unit, bound, divisor=count),), np.zeros(channels))

    def _flatten(self, layer: str, module: Any, x: Value | None) -> Value | None:
        """A vector of all elements, in the order (C, H, W)."""
        if x is None:  # the network then takes a vector
            self.rescaling.shape = (math.prod(self.rescaling.shape), 1, 1)
            return None
        if x.shape[1:] == (1, 1):
            return x
        codes = self._codes(layer, x)
        shape = (math.prod(codes.shape), 1, 1)
        return self._same_grid(codes, Step("flatten", layer, (codes.step,), shape))

    def open_sum(self, layer: str, x: Value | None) -> Sum:
        """The input as a sum to which something may still be added."""
        value = as_sum(_known(layer, x))
        return as_sum(self._codes(layer, value)) if value.is_clamped else value

    def _product(self, layer: str, module: Any, x: Value | None) -> Sum:
        """A convolution or a linear layer: sums of products of codes."""
        quantizer = getattr(module, "weight_quantizer", None)
        if not isinstance(quantizer, Quantizer):
            raise ValueError(f"{layer}: integers need weights on a grid, but its weight has 32 bits")
        if isinstance(module.input_quantizer, Quantizer):
            x = self.rescaling.quantize(module.input_quantizer, x, layer + ".input_quantizer")
        if not isinstance(x, QuantizedTensor):
            raise ValueError(f"{layer}: integers need its input on a grid, but it has 32 bits")
        settings = _product_settings(layer, module, x)
        weight = quantizer.codes(module.effective_weight).numpy().astype(np.int64)
        weight = weight.reshape(*weight.shape, *(1,) * (4 - weight.ndim))
        outputs, _, *kernel = weight.shape
        scale = quantizer.scale(module.effective_weight).double().numpy().reshape(-1)
        unit = np.broadcast_to(scale * x.scale, outputs)
        bias = module.effective_bias
        offset = np.zeros(outputs) if bias is None else bias.double().numpy()
        bound = largest_sums(weight, x)
        self.rescaling.prove(layer, bound, offset, unit)
        grid = quantizer.grid
        settings |= {"bits": grid.bits, "step": grid.step, "low": grid.low, "shape": list(weight.shape)}
        shape = output_shape(outputs, x.shape, kernel, settings)
        step = Step("conv", layer, (x.step,), shape, settings | {"zero": x.zero}, {"weight": weight})
        return Sum(shape, (SumTerm(self.program.add(step), unit, bound),), offset)

    def _batchnorm(self, layer: str, norm: Any, x: Value | None) -> Sum:
        if norm.running_mean is None:
            raise unsupported(layer, "a BatchNorm without running statistics")
        factor = (norm.running_var.double() + norm.eps).rsqrt()
        factor = factor * norm.weight.double() if norm.affine else factor
        offset = -norm.running_mean.double() * factor + (norm.bias.double() if norm.affine else 0)
        return self.open_sum(layer, x).scaled(factor.numpy(), offset.numpy())

    def _activation(self, layer: str, module: Any, x: Value | None) -> Value:
        is_hardtanh = isinstance(module, nn.Hardtanh)  # ReLU6 is one, too
        ends = (module.min_val, module.max_val) if is_hardtanh else (0.0, math.inf)
        clamped = self.open_sum(layer, x).clamped(*ends)
        quantizer = getattr(module, "quantizer", None)  # of a QuantActivation
        return self.rescaling.quantize(quantizer, clamped, layer + ".quantizer") if quantizer else clamped

    def _max_pool(self, layer: str, pool: nn.MaxPool2d, x: Value | None) -> QuantizedTensor:
        codes = self._codes(layer, x)
        settings = pool_settings(pool) | {"low": codes.low}
        shape = output_shape(codes.shape[0], codes.shape, settings["kernel"], settings)
        return self._same_grid(codes, Step("max_pool", layer, (codes.step,), shape, settings))

    def _codes(self, layer: str, x: Value | None, count: int = 1) -> QuantizedTensor:
        """The input on a grid. `count`: how many of its codes are added."""
        value = _known(layer, x)
        return value if isinstance(value, QuantizedTensor) else self.rescaling.fine(value, count, layer)

    def _same_grid(self, codes: QuantizedTensor, step: Step) -> QuantizedTensor:
        return replace(codes, step=self.program.add(step), shape=step.shape)


def _known(layer: str, x: Value | None) -> Value:
    """The input; an error if it is the network's own, which has no codes yet."""
    if x is None:
        raise unsupported(layer, "what happens to the input before it is quantized")
    return x


def _product_settings(layer: str, module: Any, x: QuantizedTensor) -> dict[str, Any]:
    if isinstance(module, nn.Linear):
        if x.shape[1:] != (1, 1):
            raise unsupported(layer, "a linear layer over images")
        return {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1}
    settings = {name: list(getattr(module, name)) for name in ("stride", "dilation")}
    padding = module.padding
    if isinstance(padding, str):
        reach = [(k - 1) * d // 2 for k, d in zip(module.kernel_size, module.dilation, strict=True)]
        padding = reach if padding == "same" else [0, 0]
    return settings | {"padding": list(padding), "groups": module.groups}

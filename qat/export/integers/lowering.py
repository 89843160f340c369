"""From a trained model to a program in integers: the graph is traced and each operation has its rule."""

import copy
import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch
from torch import fx, nn

from qat.export.integers.grids import Grids
from qat.export.integers.program import Program, Step
from qat.export.integers.windows import largest_sums, pool_settings, window_size
from qat.export.onnx.checks import check_ready
from qat.export.onnx.values import Codes, Shape, Sum, Term, Value, as_sum
from qat.layers import QuantActivation, QuantLayer
from qat.layers.activation import QuantHardtanh, QuantReLU, QuantReLU6
from qat.layers.conv import QuantConv2d
from qat.layers.deployable import FOLDED
from qat.layers.linear import QuantLinear
from qat.quantizers import Quantizer

PASSED = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, *FOLDED.values())


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = (QuantLayer, QuantActivation, Quantizer, *FOLDED.values())
        return isinstance(m, own) or super().is_leaf_module(m, module_qualified_name)


def lower(model: nn.Module, shape: Shape) -> Program:
    """The program of a model.

    Args:
        model: quantized and ready; it stays as it is.
        shape: `(C, H, W)` of one image.

    Raises:
        ValueError: the model is not ready, cannot be traced, or an operation has no form in integers; the
            message names it and its layer.
    """
    check_ready(model)
    model = copy.deepcopy(model).cpu().float().eval()
    try:
        graph = _Tracer().trace(model)
    except Exception as error:  # tracing fails in as many ways as there are models
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"integers need a model that torch.fx can trace: {why}") from error
    return _Lowering(model, shape).run(graph)


class _Lowering:
    def __init__(self, model: nn.Module, shape: Shape) -> None:
        self.model, self.shape = model, shape
        self.program = Program()
        self.grids = Grids(self.program, shape)
        self.values: dict[fx.Node, Value | None] = {}  # None: the network's input, before it is quantized
        self.layer = ""

    @torch.no_grad()
    def run(self, graph: fx.Graph) -> Program:
        graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))  # what nobody reads
        for node in graph.nodes:
            self.layer = node.target if node.op == "call_module" else self._path(node)
            if node.op == "placeholder":
                self.values[node] = None
            elif node.op == "output":
                self._output(node.args[0])
            else:
                self.values[node] = self._rule(node)(node)
        return self.program

    def _rule(self, node: fx.Node) -> Callable[[fx.Node], Value | None]:
        if node.op == "call_module":
            module = self.model.get_submodule(str(node.target))
            for kinds, rule in self._module_rules():
                if isinstance(module, kinds):
                    return lambda node: rule(module, self._input(node))
            raise self._unknown(type(module).__name__)
        name = getattr(node.target, "__name__", str(node.target))
        if name in ("add", "iadd", "add_"):
            return self._add
        if name == "flatten":
            return lambda node: self._flatten(self._input(node))
        if name in ("relu", "relu_"):
            return lambda node: as_sum(self._known(self._input(node))).cut(0.0, math.inf)
        if name == "adaptive_avg_pool2d" and len(node.args) == 2:
            size: Any = node.args[1]
            return lambda node: self._average(nn.AdaptiveAvgPool2d(size), self._input(node))
        raise self._unknown(name)

    def _module_rules(self) -> list[tuple[Any, Callable[[Any, Value | None], Value | None]]]:
        return [
            (QuantConv2d, self._conv),
            (QuantLinear, self._linear),
            ((nn.Conv2d, nn.Linear), self._float_layer),
            (PASSED, lambda module, x: x),
            ((nn.BatchNorm1d, nn.BatchNorm2d), self._batchnorm),
            ((nn.ReLU, nn.ReLU6, nn.Hardtanh), self._activation),
            (nn.MaxPool2d, self._max_pool),
            ((nn.AvgPool2d, nn.AdaptiveAvgPool2d), self._average),
            (nn.Flatten, lambda module, x: self._flatten(x)),
        ]

    # What the layers are in integers

    def _conv(self, layer: Any, x: Value | None) -> Sum:
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise self._unknown(
                f"padding {layer.padding_mode if layer.padding_mode != 'zeros' else layer.padding}"
            )
        names = ("stride", "padding", "dilation")
        settings = {name: list(getattr(layer, name)) for name in names} | {"groups": layer.groups}
        return self._product(layer, self._on_grid(layer, x), settings)

    def _linear(self, layer: Any, x: Value | None) -> Sum:
        codes = self._on_grid(layer, x)
        if codes.shape[1:] != (1, 1):
            raise self._unknown("a linear layer over images")
        pairs: dict[str, Any] = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1}
        return self._product(layer, codes, pairs)

    def _product(self, layer: Any, x: Codes, settings: dict[str, Any]) -> Sum:
        quantizer = layer.weight_quantizer
        if not isinstance(quantizer, Quantizer):
            self._float_layer(layer, x)
        weight = quantizer.codes(layer.effective_weight).numpy().astype(np.int64)
        weight = weight.reshape(*weight.shape, *(1,) * (4 - weight.ndim))
        scale = quantizer.scale(layer.effective_weight).double().numpy().reshape(-1)
        unit = np.broadcast_to(scale * x.scale, weight.shape[:1])
        shape = (weight.shape[0], *window_size(x.shape, weight.shape[2:], settings))
        grid = quantizer.grid
        stored = {"bits": grid.bits, "step": grid.step, "low": grid.low, "shape": list(weight.shape)}
        step = Step(
            "conv", self.layer, (x.step,), shape, settings | stored | {"zero": x.zero}, {"weight": weight}
        )
        bias = layer.effective_bias
        offset = np.zeros(len(unit)) if bias is None else bias.double().numpy()
        bound = largest_sums(weight, x)
        self.grids.prove(self.layer, bound, offset, unit)
        return Sum(shape, (Term(self.program.add(step), unit, bound),), offset)

    def _float_layer(self, layer: Any, x: Value | None) -> NoReturn:
        raise ValueError(f"{self.layer}: integers need weights on a grid, but its weight has 32 bits")

    def _batchnorm(self, norm: Any, x: Value | None) -> Sum:
        if norm.running_mean is None:
            raise self._unknown("a BatchNorm without running statistics")
        factor = (norm.running_var.double() + norm.eps).rsqrt()
        factor = factor * norm.weight.double() if norm.affine else factor
        offset = -norm.running_mean.double() * factor + (norm.bias.double() if norm.affine else 0)
        return self._open(x).scaled(factor.numpy(), offset.numpy())

    def _activation(self, module: Any, x: Value | None) -> Value:
        low, high = 0.0, math.inf
        if isinstance(module, nn.Hardtanh):  # ReLU6 is one of them
            low, high = module.min_val, module.max_val
        cut = self._open(x).cut(low, high)
        if isinstance(module, QuantReLU | QuantReLU6 | QuantHardtanh):
            quantizer: Any = module.quantizer
            return self.grids.quantize(quantizer, cut, self.layer + ".quantizer")
        return cut

    def _max_pool(self, pool: nn.MaxPool2d, x: Value | None) -> Codes:
        codes = self._codes(x)
        if pool.ceil_mode or pool.dilation not in (1, (1, 1)):
            raise self._unknown("max-pooling with ceil_mode or dilation")
        settings = pool_settings(pool) | {"low": codes.low}
        shape = (codes.shape[0], *window_size(codes.shape, settings["kernel"], settings))
        number = self.program.add(Step("max_pool", self.layer, (codes.step,), shape, settings))
        return Codes(number, shape, codes.scale, codes.zero, codes.low, codes.high)

    def _average(self, pool: Any, x: Value | None) -> Sum:
        shape = self._known(x).shape
        if isinstance(pool, nn.AdaptiveAvgPool2d):
            if pool.output_size not in (1, (1, 1)):
                raise self._unknown(f"adaptive average pooling to {pool.output_size}")
            kernel = list(shape[1:])
            settings = {"kernel": kernel, "stride": kernel, "padding": [0, 0]}
        else:
            settings = pool_settings(pool)
            if pool.ceil_mode or pool.divisor_override or settings["padding"] != [0, 0]:
                raise self._unknown("average pooling with padding, ceil_mode or divisor_override")
        count = math.prod(settings["kernel"])
        codes = self._codes(x, count)
        shape = (codes.shape[0], *window_size(codes.shape, settings["kernel"], settings))
        step = Step("sum_pool", self.layer, (codes.step,), shape, settings | {"zero": codes.zero})
        unit, bound = np.full(shape[0], codes.scale), np.full(shape[0], float(codes.bound * count))
        self.grids.prove(self.layer, bound, np.zeros(shape[0]), unit)
        return Sum(shape, (Term(self.program.add(step), unit, bound, divisor=count),), np.zeros(shape[0]))

    def _flatten(self, x: Value | None) -> Value | None:
        if x is None:  # the network's input, which is then given as a vector
            self.grids.shape = (math.prod(self.grids.shape), 1, 1)
            return None
        if x.shape[1:] == (1, 1):
            return x
        codes = self._codes(x)
        shape = (math.prod(codes.shape), 1, 1)
        number = self.program.add(Step("flatten", self.layer, (codes.step,), shape))
        return Codes(number, shape, codes.scale, codes.zero, codes.low, codes.high)

    def _add(self, node: fx.Node) -> Sum:
        first, second = (self.values.get(x) if isinstance(x, fx.Node) else None for x in node.args[:2])
        if first is None or second is None or len(node.args) > 2 or node.kwargs:
            raise self._unknown("a sum with a number or with the network's input")
        return self._open(first).plus(self._open(second))

    def _output(self, node: Any) -> None:
        self.layer = "the output"
        if not isinstance(node, fx.Node):
            raise self._unknown("a model that returns more than one tensor")
        value = self._open(self.values[node])
        if value.shape[1:] != (1, 1):
            raise self._unknown(f"logits of shape {value.shape}")
        self.grids.output(value)

    # What a rule may be given

    def _input(self, node: fx.Node) -> Value | None:
        (first, *_) = node.args
        assert isinstance(first, fx.Node)
        return self.values[first]

    def _known(self, x: Value | None) -> Value:
        if x is None:
            raise self._unknown("what happens to the input before it is quantized")
        return x

    def _on_grid(self, layer: Any, x: Value | None) -> Codes:
        if isinstance(layer.input_quantizer, Quantizer):
            return self.grids.quantize(layer.input_quantizer, x, self.layer + ".input_quantizer")
        if isinstance(x, Codes):
            return x
        raise ValueError(f"{self.layer}: integers need its input on a grid, but it has 32 bits")

    def _open(self, x: Value | None) -> Sum:
        value = as_sum(self._known(x))
        return as_sum(self._codes(value)) if value.is_cut else value

    def _codes(self, x: Value | None, count: int = 1) -> Codes:
        value = self._known(x)
        return value if isinstance(value, Codes) else self.grids.fine(value, count, self.layer)

    def _path(self, node: fx.Node) -> str:
        stack = node.meta.get("nn_module_stack") or {}
        path = next(reversed(stack.values()))[0] if stack else ""
        return path or "the model itself"

    def _unknown(self, what: str) -> ValueError:
        return ValueError(f"{self.layer}: there is no form in integers for {what}")

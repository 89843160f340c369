"""From a trained model to a program in integers: torch.fx traces the graph, and each operation has a rule."""

import math
from collections.abc import Callable
from functools import partialmethod
from typing import Any

import torch
from torch import Tensor, fx, nn

from qat.export.integers.program import Program
from qat.export.integers.rules import Rules, unsupported
from qat.export.integers.values import Shape, Sum, Value
from qat.export.readiness import check_ready
from qat.export.torch_state import default_torch_state
from qat.export.trained_model import plain_copy
from qat.layers import QuantActivation, QuantLayer
from qat.layers.deployable import FOLDED
from qat.layers.functional import CALLS
from qat.quantizers import Quantizer

# The modules that compute the same as the functions and methods of these names, and the names of those
# arguments that follow the input.
POOL = ("kernel_size", "stride", "padding")
MODULES: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
    "flatten": (nn.Flatten, ("start_dim", "end_dim")),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d, ("output_size",)),
    "avg_pool2d": (nn.AvgPool2d, (*POOL, "ceil_mode", "count_include_pad", "divisor_override")),
    "max_pool2d": (nn.MaxPool2d, (*POOL, "dilation", "ceil_mode", "return_indices")),
    **dict.fromkeys(("relu", "relu_"), (nn.ReLU, ("inplace",))),
    "relu6": (nn.ReLU6, ("inplace",)),
    **dict.fromkeys(("hardtanh", "hardtanh_"), (nn.Hardtanh, ("min_val", "max_val", "inplace"))),
}
# In eval mode these return their input.
PASSED = ("contiguous", "clone", "detach", "dropout", "dropout1d", "dropout2d", "feature_dropout")
SIZES = ("size", "getattr", "getitem")  # `x.size(0)` and `x.shape[0]`


class _Proxy(fx.Proxy):
    """Its activation methods call functions, which unlike methods of a proxy go through function modes."""


for method in CALLS.keys() & set(dir(Tensor)):
    setattr(_Proxy, method, partialmethod(lambda x, function: function(x), getattr(torch, method)))


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        leaves = (QuantLayer, QuantActivation, Quantizer, *FOLDED.values())
        return isinstance(m, leaves) or super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)


@default_torch_state()
def lower(model: nn.Module, shape: tuple[int, ...]) -> Program:
    """The program of a quantized model, which stays unchanged, for images of a shape `(C, H, W)`."""
    check_ready(model)
    model = plain_copy(model)
    try:
        graph = _Tracer().trace(model)
    except Exception as error:  # tracing raises many types
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"integers need a model that torch.fx can trace: {why}") from error
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))  # what has no reader
    channels, height, width = shape
    return _Lowering(model, (channels, height, width)).run(graph)


class _Lowering:
    """Walks through a graph in its order and keeps the value of each node."""

    def __init__(self, model: nn.Module, shape: Shape) -> None:
        self.model = model
        self.program = Program()
        self.rules = Rules(self.program, shape)
        self.values: dict[fx.Node, Value | None] = {}  # None: the network's input, before it is quantized

    def run(self, graph: fx.Graph) -> Program:
        for node in graph.nodes:
            x = next((self.values[read] for read in node.all_input_nodes), None)
            if node.op == "placeholder":
                self.values[node] = None
            elif node.op == "output":
                self._output(node.args[0])
            elif node.op == "call_module":
                module = self.model.get_submodule(node.target)
                self.values[node] = self.rules.module(node.target, module, x)
            else:
                self.values[node] = self._function(node, x)
        return self.program

    def _function(self, node: fx.Node, x: Value | None) -> Value | None:
        layer, name = layer_of_call(node), getattr(node.target, "__name__", str(node.target))
        if name in ("add", "iadd", "add_"):
            return self._add(layer, node)
        if name in PASSED or (name in SIZES and _is_size(node)):
            return x
        if name in ("view", "reshape"):
            return self._view(layer, node, x)
        if name == "mean":
            return self._mean(layer, node, x)
        if name not in MODULES:
            raise unsupported(layer, name)
        kind, names = MODULES[name]
        settings = dict(zip(names, node.args[1:], strict=False)) | node.kwargs
        settings.pop("input", None)
        if name == "flatten" and node.op == "call_function":
            settings = {"start_dim": 0} | settings
        return self.rules.module(layer, kind(**settings), x)

    def _view(self, layer: str, node: fx.Node, x: Value | None) -> Value | None:
        """A view that keeps the batch and makes one vector of the rest."""
        sizes = node.args[1:]
        if len(sizes) == 1 and isinstance(sizes[0], list | tuple):
            sizes = tuple(sizes[0])
        length = math.prod(self.rules.rescaling.shape if x is None else x.shape)
        keeps_batch = len(sizes) == 2 and (isinstance(sizes[0], fx.Node) or sizes == (-1, length))
        if keeps_batch and sizes[1] in (-1, length):
            return self.rules.module(layer, nn.Flatten(), x)
        raise unsupported(layer, f"a view of shape {tuple(sizes)}")

    def _mean(self, layer: str, node: fx.Node, x: Value | None) -> Value | None:
        """The mean over the image is an average pool."""
        axes: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        positive = sorted(axis % 4 for axis in axes) if isinstance(axes, list | tuple) else axes
        if positive != [2, 3] or "dtype" in node.kwargs:
            raise unsupported(layer, f"a mean over the axes {axes}")
        return self.rules.module(layer, nn.AdaptiveAvgPool2d(1), x)

    def _add(self, layer: str, node: fx.Node) -> Sum:
        first, second = (self.values.get(x) if isinstance(x, fx.Node) else None for x in node.args[:2])
        if first is None or second is None or len(node.args) > 2 or node.kwargs:
            raise unsupported(layer, "a sum with a number or with the network's input")
        return self.rules.open_sum(layer, first).plus(self.rules.open_sum(layer, second))

    def _output(self, node: Any) -> None:
        if not isinstance(node, fx.Node):
            raise unsupported("the output", "a model that returns more than one tensor")
        value = self.rules.open_sum("the output", self.values[node])
        if value.shape[1:] != (1, 1):
            raise unsupported("the output", f"logits of shape {value.shape}")
        self.rules.rescaling.output(value)


def _is_size(node: fx.Node) -> bool:
    """Whether the value is a shape, or a number of one."""
    name = getattr(node.target, "__name__", node.target)
    if name == "getattr":
        return bool(node.args[1] == "shape")
    of = node.args[0]
    return name == "size" or (name == "getitem" and isinstance(of, fx.Node) and _is_size(of))


def layer_of_call(node: fx.Node) -> str:
    """The module whose forward calls a function."""
    # No public function says it; `tests/export/test_torch_metadata.py` checks the key.
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    return path or "the model itself"

"""From a trained model to a program in integers: torch.fx traces the graph, and each operation has a rule."""

import math
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
from qat.layers.integer_forms import ADDITIONS, PASSED, called_module, drops, is_flat_view
from qat.quantizers import Quantizer

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
    """The program of a quantized model, which stays unchanged, for images of a shape `(C, H, W)`.

    Raises ValueError for another shape, or a model that is not ready or has no form in integers.
    """
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(f"shape must be channels, height and width of one image, got {tuple(shape)}")
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
        if name in ADDITIONS:
            return self._add(layer, node)
        if drops(name, node.args, node.kwargs):
            raise unsupported(layer, f"{name} in eval mode")
        if name in PASSED or (name in SIZES and _is_size(node)):
            return x
        module = called_module(name, node.args, node.kwargs)
        if name in ("view", "reshape"):
            length = math.prod(self.rules.rescaling.shape if x is None else x.shape)
            module = nn.Flatten() if is_flat_view(node.args[1:], length) else None
        if module is None:
            raise unsupported(layer, name)
        return self.rules.module(layer, module, x)

    def _add(self, layer: str, node: fx.Node) -> Sum:
        first, second = (self.values.get(x) if isinstance(x, fx.Node) else None for x in node.args[:2])
        if first is None or second is None or len(node.args) > 2 or node.kwargs:
            raise unsupported(layer, "a sum with a number or with the network's input")
        if first.shape != second.shape:
            raise unsupported(layer, f"a sum of the shapes {first.shape} and {second.shape}")
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

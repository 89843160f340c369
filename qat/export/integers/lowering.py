"""From a trained model to a program in integers: torch.fx traces the graph, and each operation has a rule."""

from collections.abc import Callable
from typing import Any

from torch import fx, nn

from qat.export.integers.program import Program
from qat.export.integers.rules import Rules, unsupported
from qat.export.integers.values import Shape, Sum, Value
from qat.export.readiness import check_ready
from qat.export.torch_state import default_torch_state
from qat.export.trained_model import plain_copy
from qat.layers import QuantActivation, QuantLayer
from qat.layers.deployable import FOLDED
from qat.quantizers import Quantizer

# The modules that compute the same as the functions and methods of these names.
MODULES: dict[str, Callable[..., nn.Module]] = {
    "flatten": nn.Flatten,
    **{"relu": nn.ReLU, "relu_": nn.ReLU},
    "adaptive_avg_pool2d": nn.AdaptiveAvgPool2d,
}


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        leaves = (QuantLayer, QuantActivation, Quantizer, *FOLDED.values())
        return isinstance(m, leaves) or super().is_leaf_module(m, module_qualified_name)


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
        if name not in MODULES:
            raise unsupported(layer, name)
        settings = {key: value for key, value in node.kwargs.items() if key != "input"}
        return self.rules.module(layer, MODULES[name](*node.args[1:], **settings), x)

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


def layer_of_call(node: fx.Node) -> str:
    """The module whose forward calls a function."""
    # No public function says it; `tests/export/test_torch_metadata.py` checks the key.
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    return path or "the model itself"

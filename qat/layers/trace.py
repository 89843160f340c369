"""Run a float model once and see what feeds each convolution and linear layer."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

MATRIX_LAYERS = (nn.Conv2d, nn.Linear)
ACTIVATIONS = (nn.ReLU,)

# Functions by name, module or functional form alike. What is not listed gives signed values off the grid.
KEEP_GRID = {
    *("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool2d", "dropout", "dropout2d"),
    *(
        "flatten",
        "view",
        "reshape",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "permute",
        "transpose",
        "contiguous",
    ),
    *("chunk", "split", "unbind", "__getitem__", "channel_shuffle", "clone", "detach", "to", "expand"),
}
KEEP_SIGN = {
    *("avg_pool2d", "adaptive_avg_pool2d", "mean", "sum", "amax", "interpolate", "cat", "concat", "stack"),
    *("add", "add_", "__add__", "__iadd__", "__radd__", "mul", "mul_", "__mul__", "__imul__", "__rmul__"),
}
UNSIGNED = {"relu", "relu_", "relu6", "sigmoid", "sigmoid_", "hardsigmoid", "softmax"}


@dataclass(frozen=True)
class Fact:
    """What is known of one tensor while the example runs."""

    unsigned: bool = False
    source: str | None = None  # the activation module on whose grid it lies
    network_input: bool = False
    upstream: frozenset[str] = frozenset()  # the matrix layers that it depends on


@dataclass
class Reader:
    """One convolution or linear layer: what it read, call after call."""

    name: str
    facts: list[Fact] = field(default_factory=list)
    samples: list[Tensor] = field(default_factory=list)


@dataclass
class Trace(TorchFunctionMode):
    """The readers in the order in which they ran, and the outputs of the activation modules."""

    readers: dict[str, Reader] = field(default_factory=dict)
    activations: dict[str, list[Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        # The tensor is kept with its fact, so that its id is not given to another one meanwhile.
        self._facts: dict[int, tuple[Tensor, Fact]] = {}

    def fact(self, x: Tensor) -> Fact:
        return self._facts.get(id(x), (x, Fact()))[1]

    def learn(self, x: Tensor, fact: Fact) -> None:
        self._facts[id(x)] = (x, fact)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # Before the call: an in-place function changes what is known of its own input.
        fact = self._conclude(func.__name__, args, kwargs)
        output = func(*args, **kwargs)
        for x in _tensors(output):
            self.learn(x, fact)
        return output

    def _conclude(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fact:
        leaves = tree_leaves((args, kwargs))
        inputs = [self.fact(x) for x in leaves if isinstance(x, Tensor)]
        upstream = frozenset[str]().union(*(fact.upstream for fact in inputs))
        if name in KEEP_GRID or (name == "pad" and _pads_zeros(args, kwargs)):
            return replace(inputs[0], upstream=upstream)
        unsigned = name in UNSIGNED or (name in KEEP_SIGN and all(fact.unsigned for fact in inputs))
        return Fact(unsigned=unsigned, upstream=upstream)

    def read(self, name: str, x: Tensor) -> None:
        reader = self.readers.setdefault(name, Reader(name))
        reader.facts.append(self.fact(x))
        reader.samples.append(x.detach().clone())

    def ran(self, name: str, x: Tensor, output: Tensor) -> None:
        self.learn(output, Fact(upstream=self.fact(x).upstream | {name}))

    def activated(self, name: str, output: Tensor) -> None:
        self.activations.setdefault(name, []).append(output.detach().clone())
        self.learn(output, replace(self.fact(output), source=name))


def trace(model: nn.Module, example: Tensor | tuple[Any, ...]) -> Trace:
    """What happened while the model ran on the example.

    The model runs in training mode, without grad and dropout, on copies of its buffers; afterwards its
    mode, buffers and the random state are as before.
    """
    args = example if isinstance(example, tuple) else (example,)
    seen = Trace()
    modes = {module: module.training for module in model.modules()}
    hooks = list(_watch(model, seen))
    devices = sorted({x.device.index for x in _tensors(args) if x.device.type == "cuda"})
    try:
        model.train()
        for module in model.modules():
            if "Drop" in type(module).__name__ or "StochasticDepth" in type(module).__name__:
                module.eval()
        for x in _tensors(args):
            seen.learn(x, Fact(network_input=True))
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with torch.no_grad(), torch.random.fork_rng(devices), seen:
            functional_call(model, buffers, args)
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes.items():
            module.training = training
    return seen


def _watch(model: nn.Module, seen: Trace) -> Iterator[torch.utils.hooks.RemovableHandle]:
    for name, module in model.named_modules():
        if type(module) in MATRIX_LAYERS:
            yield module.register_forward_pre_hook(lambda _, args, name=name: seen.read(name, args[0]))
            yield module.register_forward_hook(lambda _, args, out, name=name: seen.ran(name, args[0], out))
        elif type(module) in ACTIVATIONS:
            yield module.register_forward_hook(lambda _, args, out, name=name: seen.activated(name, out))


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def _pads_zeros(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    mode = args[2] if len(args) > 2 else kwargs.get("mode", "constant")
    value = args[3] if len(args) > 3 else kwargs.get("value")
    return mode == "constant" and not value

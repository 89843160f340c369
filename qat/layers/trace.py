"""Run a float model once and see what feeds each convolution and linear layer."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from qat.buffers import call_on, copy_buffers

MATRIX_LAYERS = (nn.Conv2d, nn.Linear)
ACTIVATIONS = (nn.ReLU,)

# Functions by name, module or functional form alike. What is not listed gives signed values off the grid.
KEEP_GRID = {
    *("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d"),
    *("flatten", "view", "view_as", "reshape", "unflatten", "squeeze", "unsqueeze", "permute", "transpose"),
    *(
        "chunk",
        "split",
        "unbind",
        "__getitem__",
        "channel_shuffle",
        "contiguous",
        "clone",
        "detach",
        "expand",
    ),
}
KEEP_SIGN = {"avg_pool2d", "adaptive_avg_pool2d", "mean", "sum", "amax", "cat", "concat", "stack"}
# These too, where the numbers among their arguments are not negative.
ADD_OR_MULTIPLY = {
    *("add", "add_", "__add__", "__iadd__", "__radd__", "mul", "mul_", "__mul__", "__imul__", "__rmul__"),
}
UNSIGNED = {"relu", "relu_", "relu6", "sigmoid", "sigmoid_", "hardsigmoid", "softmax"}
DROPOUT = {
    *("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "feature_dropout_"),
    *("alpha_dropout", "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_"),
}


@dataclass(frozen=True)
class Fact:
    """What is known of one tensor while the example runs."""

    unsigned: bool = False
    source: str | None = None  # the activation module on whose grid it lies
    upstream: frozenset[str] = frozenset()  # the matrix layers that it depends on; none: the network's input


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
        if id(x) in self._facts:
            return self._facts[id(x)][1]
        # It came past this mode, out of a custom Function say: it may depend on all that ran before.
        return Fact(upstream=frozenset(self.readers))

    def learn(self, x: Tensor, fact: Fact) -> None:
        self._facts[id(x)] = (x, fact)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.__name__ in DROPOUT:
            return args[0]
        # Before the call: an in-place function changes what is known of its own input.
        fact = self._conclude(func.__name__, args, kwargs)
        output = func(*args, **kwargs)
        for x in _tensors(args[0] if func.__name__ == "__setitem__" else output):
            self.learn(x, fact)
        return output

    def _conclude(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fact:
        leaves = tree_leaves((args, kwargs))
        inputs = [self.fact(x) for x in leaves if isinstance(x, Tensor)]
        upstream = frozenset[str]().union(*(fact.upstream for fact in inputs))
        if name in KEEP_GRID or (name == "pad" and _pads_zeros(args, kwargs)):
            return replace(inputs[0], upstream=upstream)
        if name == "hardtanh":  # what nn.ReLU6 calls
            return Fact(unsigned=_argument(args, kwargs, 1, "min_val", -1.0) >= 0, upstream=upstream)
        keeps = name in KEEP_SIGN or (name in ADD_OR_MULTIPLY and not any(_negative(x) for x in leaves))
        unsigned = name in UNSIGNED or (keeps and all(fact.unsigned for fact in inputs))
        return Fact(unsigned=unsigned, upstream=upstream)

    def read(self, name: str, x: Tensor) -> None:
        reader = self.readers.setdefault(name, Reader(name))
        reader.facts.append(self.fact(x))
        reader.samples.append(x.detach().clone())

    def ran(self, name: str, x: Tensor, output: Tensor) -> None:
        self.learn(output, Fact(upstream=self.fact(x).upstream | {name}))

    def activated(self, name: str, output: Tensor) -> Tensor:
        self.activations.setdefault(name, []).append(output.detach().clone())
        # Known by a tensor of its own: an in-place activation returns its input, and who reads that variable
        # afterwards will read what was not quantized.
        alias = output.view_as(output)
        self.learn(alias, replace(self.fact(output), source=name))
        return alias


def trace(model: nn.Module, args: tuple[Any, ...], signed: bool) -> Trace:
    """What happened while the model ran on the arguments.

    The model runs in training mode, without grad and dropout, on copies of its buffers; afterwards its
    mode, buffers and the random state are as before.

    Args:
        model: a float model.
        args: its arguments.
        signed: whether the tensors among them may be negative.
    """
    seen = Trace()
    modes = {module: module.training for module in model.modules()}
    hooks = list(_watch(model, seen))
    devices = sorted({x.device.index for x in _tensors(args) if x.device.type == "cuda"})
    buffers = copy_buffers(model)
    for x in _tensors(args):
        seen.learn(x, Fact(unsigned=not signed))
    for x in [*model.parameters(), *buffers.values()]:
        seen.learn(x, Fact())
    try:
        model.train()
        for module in model.modules():
            if type(module).__name__ in ("StochasticDepth", "DropPath"):  # dropout of whole branches
                module.eval()
        with torch.no_grad(), torch.random.fork_rng(devices), seen:
            call_on(model, buffers, args)
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes.items():
            module.training = training
    return seen


def _watch(model: nn.Module, seen: Trace) -> Iterator[torch.utils.hooks.RemovableHandle]:
    for name, module in model.named_modules():
        if type(module) in MATRIX_LAYERS:
            yield module.register_forward_pre_hook(
                lambda _, args, kwargs, name=name: seen.read(name, _input(args, kwargs)), with_kwargs=True
            )
            yield module.register_forward_hook(
                lambda _, args, kwargs, out, name=name: seen.ran(name, _input(args, kwargs), out),
                with_kwargs=True,
            )
        elif type(module) in ACTIVATIONS:
            yield module.register_forward_hook(lambda _, args, out, name=name: seen.activated(name, out))


def _input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    x: Tensor = args[0] if args else kwargs["input"]
    return x


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def _negative(x: Any) -> bool:
    return isinstance(x, int | float) and x < 0


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)


def _pads_zeros(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    constant = _argument(args, kwargs, 2, "mode", "constant") == "constant"
    return constant and not _argument(args, kwargs, 3, "value", None)

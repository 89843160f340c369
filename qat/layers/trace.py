"""Run a model once and see what feeds each convolution and linear layer."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from qat.layers.example import run_example, tensors
from qat.layers.facts import DROPOUT, MATRIX_PRODUCTS, Fact, conclude
from qat.module_state import copy_buffers

# Modules that multiply matrices; those of them that are no readers stay float.
MATRIX_MODULES = (
    *(nn.modules.conv._ConvNd, nn.Linear, nn.Bilinear, nn.MultiheadAttention),
    *(nn.RNNBase, nn.RNNCellBase),
)


@dataclass
class Reader:
    """One convolution or linear layer: what it read and the shapes of what it gave, call after call."""

    name: str
    facts: list[Fact] = field(default_factory=list)
    samples: list[Tensor] = field(default_factory=list)
    outputs: list[torch.Size] = field(default_factory=list)


@dataclass
class Activation:
    """One activation module: what is known of what it gave first, and what it gave, call after call."""

    fact: Fact
    samples: list[Tensor] = field(default_factory=list)


@dataclass
class Trace(TorchFunctionMode):
    """The readers and activations in the order in which they ran, and the matrix products outside of them.

    Args:
        is_reader: whether a module is a convolution or linear layer.
        is_activation: whether a module is an activation that has, or may get, a quantizer.
    """

    is_reader: Callable[[nn.Module], bool]
    is_activation: Callable[[nn.Module], bool]
    readers: dict[str, Reader] = field(default_factory=dict)
    activations: dict[str, Activation] = field(default_factory=dict)
    products: list[tuple[str, str]] = field(default_factory=list)  # the module it ran in, the function
    path: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        # The tensor is kept with its fact, so that its id is not given to another one meanwhile.
        self._facts: dict[int, tuple[Tensor, Fact]] = {}
        self._sharing: dict[int, list[Tensor]] = {}  # the tensors of one memory, by its place

    def fact(self, x: Tensor) -> Fact:
        if id(x) in self._facts:
            return self._facts[id(x)][1]
        # It came past this mode, out of a custom Function say: it may depend on all that ran before.
        return Fact(upstream=frozenset(self.readers))

    def learn(self, x: Tensor, fact: Fact) -> None:
        if id(x) not in self._facts:
            self._sharing.setdefault(_memory(x), []).append(x)
        self._facts[id(x)] = (x, fact)

    def _learn_write(self, x: Tensor, fact: Fact) -> None:
        """Something was written into a tensor: who shares its memory holds it, too, in a part at least."""
        for other in self._sharing.get(_memory(x), []):
            old = self.fact(other)
            both = Fact(old.unsigned and fact.unsigned, upstream=old.upstream | fact.upstream)
            self.learn(other, both)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__
        if name in DROPOUT:
            return args[0] if args else kwargs["input"]
        if name in MATRIX_PRODUCTS and not any(running in self.readers for running in self.path):
            self.products.append((self.path[-1] if self.path else "", name))
        # Before the call: an in-place function changes what is known of its own input.
        fact = conclude(name, args, kwargs, self.fact)
        given = [x for x in tensors((args, kwargs)) if not x.is_inference()]
        versions = [x._version for x in given]
        output = func(*args, **kwargs)
        written = [x for x, version in zip(given, versions, strict=True) if x._version != version]
        unchanged = {id(x) for x in given} - {id(x) for x in written}
        for x in written:
            self._learn_write(x, fact)
        for x in tensors(output):
            if id(x) not in unchanged:  # `x.float()` is x, where x is one already
                self.learn(x, fact)
        return output

    def enter(self, name: str, module: nn.Module, inputs: list[Any]) -> None:
        if self.is_reader(module):
            reader = self.readers.setdefault(name, Reader(name))
            x = tensors(inputs)[0]
            reader.facts.append(self.fact(x))
            reader.samples.append(x.detach().clone())

    def leave(self, name: str, module: nn.Module, inputs: list[Any], output: Any) -> Any:
        if self.is_reader(module):
            self.readers[name].outputs.append(output.shape)
            self.learn(output, Fact(upstream=self.fact(tensors(inputs)[0]).upstream | {name}))
        elif self.is_activation(module):
            return self._activated(name, output)
        elif isinstance(module, MATRIX_MODULES):
            for x in tensors(output):
                fact = self.fact(x)
                self.learn(x, replace(fact, upstream=fact.upstream | {name}))
        return None

    def _activated(self, name: str, output: Tensor) -> Tensor:
        fact = self.fact(output)
        seen = self.activations.setdefault(name, Activation(fact))
        seen.samples.append(output.detach().clone())
        # Known by a tensor of its own: an in-place activation returns its input, and who reads that variable
        # afterwards will read what was not quantized.
        alias = output.view_as(output)
        self.learn(alias, replace(fact, source=name))
        return alias


def _memory(x: Tensor) -> int:
    try:
        return x.untyped_storage().data_ptr()
    except RuntimeError:  # sparse, or inside torch.vmap: a memory of its own
        return id(x)


def trace(model: nn.Module, args: tuple[Any, ...], signed: bool, training: bool, seen: Trace) -> Trace:
    """What happened while the model ran on the arguments, without dropout; it stays as it was.

    Args:
        model: any module.
        args: its arguments.
        signed: whether the tensors among them may be negative.
        training: the mode in which it runs.
        seen: what counts as a reader, and as an activation; empty before, returned full.

    Raises:
        ValueError: the model does not run on the arguments.
    """
    for x in tensors(args):
        seen.learn(x, Fact(unsigned=not signed))
    buffers = copy_buffers(model)
    for x in [*model.parameters(), *buffers.values()]:
        seen.learn(x, Fact())
    run_example(model, args, buffers, training, seen, seen)
    return seen

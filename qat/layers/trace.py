"""Run a model once and record what feeds each convolution and linear layer."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from qat.layers.consumers import FOLDABLE
from qat.layers.example import run_example
from qat.layers.functional import CALLS, HOLDER, IN_PLACE, as_module
from qat.layers.tensor_properties import DROPOUT, MATRIX_PRODUCTS, TensorProperties, propagate
from qat.module_state import copy_buffers
from qat.torch_private import tensors_in, version_of

CONV_AND_LINEAR = tuple(FOLDABLE)
# Modules that multiply matrices; those that are no consumers stay float.
MATRIX_MODULES = (*CONV_AND_LINEAR, nn.Bilinear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)


@dataclass
class TracedModule:
    """The inputs of one convolution or linear layer, or the outputs of one activation module, by call."""

    name: str
    properties: list[TensorProperties] = field(default_factory=list)
    samples: list[Tensor] = field(default_factory=list)
    outputs: list[torch.Size] = field(default_factory=list)  # the shapes of a layer's outputs

    @property
    def source(self) -> str | None:
        """The activation module whose grid the inputs of all calls lie on; None: there is no such module."""
        sources = {properties.source for properties in self.properties}
        return sources.pop() if len(sources) == 1 else None


class ModelTrace(TorchFunctionMode):
    """The consumers and activations in the order in which they ran, and the matrix products outside of them.

    Args:
        is_consumer: whether a module is a convolution or linear layer to record.
        is_activation: whether a module is an activation that has a quantizer, or may get one.
        owns_calls: whether activations that a module's own forward calls as functions may get a quantizer.
    """

    def __init__(
        self,
        is_consumer: Callable[[nn.Module], bool],
        is_activation: Callable[[nn.Module], bool],
        owns_calls: Callable[[nn.Module], bool] = lambda _: False,
    ) -> None:
        super().__init__()
        self.is_consumer, self.is_activation, self.owns_calls = is_consumer, is_activation, owns_calls
        self.functional: dict[str, nn.Module] = {}  # the activation calls among `activations`, as modules
        self.in_place: set[str] = set()  # the modules that call some of them by a function of `IN_PLACE`
        self.consumers: dict[str, TracedModule] = {}
        self.activations: dict[str, TracedModule] = {}
        self.products: list[tuple[str, str]] = []  # (module, function) of each
        self.path: list[str] = []
        # The activation calls of each run of an owner's forward, and the owners of calls that torch's
        # checkpointing repeats in the backward, outside of their forward.
        self.calls: dict[str, list[list[str]]] = {}
        self.repeated: set[str] = set()
        self._owners: list[str | None] = []  # of each running module: its name if it owns its calls
        self._numbers: list[int] = []  # of each running module: its next own activation call
        # The tensor is stored too, so that no other tensor can get its id.
        self._properties: dict[int, tuple[Tensor, TensorProperties]] = {}
        self._sharing: dict[int, list[Tensor]] = {}  # storage address -> the tensors that share it

    def run(self, model: nn.Module, args: tuple[Any, ...], *, signed: bool, training: bool) -> None:
        """Record a run of a model without dropout; `signed`: the arguments may be negative."""
        for x in tensors_in(args):
            self.record(x, TensorProperties(unsigned=not signed))
        buffers = copy_buffers(model)
        for x in [*model.parameters(), *buffers.values()]:
            self.record(x, TensorProperties())
        run_example(model, args, buffers, training, self)

    def find(self, x: Tensor) -> TensorProperties:
        """The properties of a tensor."""
        if id(x) in self._properties:
            return self._properties[id(x)][1]
        # The mode does not see custom autograd Functions: assume that x depends on all layers so far.
        return TensorProperties(upstream=frozenset(self.consumers))

    def record(self, x: Tensor, properties: TensorProperties) -> None:
        """Set the properties of a tensor."""
        if id(x) not in self._properties:
            self._sharing.setdefault(_storage_address(x), []).append(x)
        self._properties[id(x)] = (x, properties)

    def _record_write(self, x: Tensor, properties: TensorProperties) -> None:
        """Values were written into x: each tensor that shares its storage may hold them too."""
        for other in self._sharing.get(_storage_address(x), []):
            old = self.find(other)
            unsigned = old.unsigned and properties.unsigned
            self.record(other, TensorProperties(unsigned, upstream=old.upstream | properties.upstream))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__
        if name in DROPOUT:
            return args[0] if args else kwargs["input"]
        if name in MATRIX_PRODUCTS and not any(running in self.consumers for running in self.path):
            self.products.append((self.path[-1] if self.path else "", name))
        # Before the call, because an in-place function changes the properties of its own input.
        properties = propagate(name, args, kwargs, self.find)
        inputs = [x for x in tensors_in((args, kwargs)) if not x.is_inference()]
        versions = [version_of(x) for x in inputs]
        output = func(*args, **kwargs)
        written = [x for x, version in zip(inputs, versions, strict=True) if version_of(x) != version]
        unchanged = {id(x) for x in inputs} - {id(x) for x in written}
        for x in written:
            self._record_write(x, properties)
        for x in tensors_in(output):
            if id(x) not in unchanged:  # `x.float()` is x itself where x is float already
                self.record(x, properties)
        return self._activation_call(name, args, kwargs, output)

    def _activation_call(self, function: str, args: Any, kwargs: Any, output: Any) -> Any:
        """The output, recorded as that of an activation if a module's own forward called it."""
        if function not in CALLS or not self._owners or self._owners[-1] is None:
            return output
        number = self._numbers[-1]
        self._numbers[-1] += 1
        self.calls[self._owners[-1]][-1].append(CALLS[function])
        if _is_checkpointed():
            self.repeated.add(self._owners[-1])
        if function in IN_PLACE:
            self.in_place.add(self._owners[-1])
        module = as_module(function, args, kwargs)
        if module is None:
            return output
        name = ".".join(filter(None, (self._owners[-1], HOLDER, f"{CALLS[function]}_{number}")))
        self.functional[name] = module
        return self._leave_activation(name, output)

    def _leave_activation(self, name: str, output: Tensor) -> Tensor:
        self._append(self.activations, name, output)
        # A new tensor stands for the output: an in-place activation returns its own input, and a layer that
        # reads the input variable afterwards does not read the quantized output.
        alias = output.view_as(output)
        self.record(alias, replace(self.find(output), source=name))
        return alias

    def _append(self, traced: dict[str, TracedModule], name: str, x: Tensor) -> None:
        module = traced.setdefault(name, TracedModule(name))
        module.properties.append(self.find(x))
        module.samples.append(x.detach().clone())

    def enter(self, name: str, module: nn.Module, inputs: list[Any]) -> None:
        self._owners.append(name if self.owns_calls(module) else None)
        if self._owners[-1] is not None:
            self.calls.setdefault(name, []).append([])
        self._numbers.append(0)
        if self.is_consumer(module):
            self._append(self.consumers, name, tensors_in(inputs)[0])

    def leave(self, name: str, module: nn.Module, inputs: list[Any], output: Any) -> Any:
        self._owners.pop()
        self._numbers.pop()
        if self.is_consumer(module):
            self.consumers[name].outputs.append(output.shape)
            upstream = self.find(tensors_in(inputs)[0]).upstream
            self.record(output, TensorProperties(upstream=upstream | {name}))
        elif self.is_activation(module):
            return self._leave_activation(name, output)
        elif isinstance(module, MATRIX_MODULES):
            for x in tensors_in(output):
                properties = self.find(x)
                self.record(x, replace(properties, upstream=properties.upstream | {name}))
        return None


def _is_checkpointed() -> bool:
    """Whether `torch.utils.checkpoint` is running."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == torch.utils.checkpoint.__file__:
            return True
    return False


def _storage_address(x: Tensor) -> int:
    try:
        return x.untyped_storage().data_ptr()
    except RuntimeError:  # a sparse tensor, or one inside torch.vmap, has no storage that others could share
        return id(x)

"""Activation functions that a module's own forward calls, such as `F.relu(x)`, as quantized activations."""

from collections.abc import Mapping
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from qat.swapped_class import SwappedClass, swap_class
from qat.torch_private import function_modes

HOLDER = "functional"  # the attribute of a module that holds the activations of its own calls
# Functions and methods of torch by name -> the activation module that computes the same.
KINDS: dict[str, type[nn.Module]] = {
    **{"relu": nn.ReLU, "relu6": nn.ReLU6, "hardtanh": nn.Hardtanh, "leaky_relu": nn.LeakyReLU},
    **{"sigmoid": nn.Sigmoid, "hardsigmoid": nn.Hardsigmoid, "tanh": nn.Tanh, "softplus": nn.Softplus},
    **{"silu": nn.SiLU, "hardswish": nn.Hardswish, "mish": nn.Mish, "gelu": nn.GELU, "elu": nn.ELU},
}
IN_PLACE = ("relu_", "leaky_relu_", "hardtanh_", "elu_")
# The functions that count as activation calls of a module -> their name without the underscore.
CALLS = {name: name for name in KINDS} | {name: name[:-1] for name in IN_PLACE}


def as_module(function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> nn.Module | None:
    """The module that computes the same as a call; None if there is none (`torch.tanh(x, out=y)`)."""
    options = {key: value for key, value in kwargs.items() if key != "input"}
    if function in IN_PLACE:
        options["inplace"] = True
    try:
        return KINDS[CALLS[function]](*args[1:], **options)
    except TypeError:
        return None


class Holder(nn.ModuleDict):
    """The activations of a module's own calls. A forward over all `children()` passes through it."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Functional(SwappedClass):
    """A module whose own activation calls are replaced by the modules in its `functional`.

    The n-th call of its forward is replaced by `functional["<function>_<n>"]`, if there is such a module.
    Calls of the modules inside it do not count.
    """

    functional: Holder

    @classmethod
    def members(cls, plain: type[nn.Module]) -> dict[str, Any]:
        @wraps(plain.forward)  # torch's tracers read the names of the arguments
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            with _OwnCalls(self.functional):
                return plain.forward(self, *args, **kwargs)

        return {"forward": forward}


class FunctionalInPlace(Functional):
    """A `Functional` module that calls `torch.relu_` and the like, which no function mode sees in a graph.

    `torch.compile` therefore runs its forward eagerly.
    """

    @classmethod
    def members(cls, plain: type[nn.Module]) -> dict[str, Any]:
        reason = f"{plain.__name__} calls torch.relu_ or the like; call F.relu(x, inplace=True) instead"
        forward = super().members(plain)["forward"]
        return {"forward": torch.compiler.disable(forward, reason=reason)}


class _OwnCalls(TorchFunctionMode):
    """Counts the activation calls of one forward. The state is this forward's own, for any thread."""

    def __init__(self, activations: Holder) -> None:
        super().__init__()
        self.activations = activations
        self.number = 0
        self.inside = 0  # how many modules are running that the forward has called

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.inside or func.__name__ not in CALLS:
            return func(*args, **kwargs)
        name = f"{CALLS[func.__name__]}_{self.number}"
        self.number += 1
        if name not in self.activations:
            return func(*args, **kwargs)
        x: Tensor = args[0] if args else kwargs["input"]
        return self.activations[name](x)


def replace_calls(owner: Any, activations: Mapping[str, nn.Module], in_place: bool) -> None:
    """Replace activation calls of a module's own forward by modules, by their names in `functional`.

    `in_place`: whether functions of `IN_PLACE` are among its calls, replaced or not.
    """
    owner.functional = Holder(dict(activations)).train(owner.training)
    swap_class(owner, FunctionalInPlace if in_place else Functional)


def announce_calls(module: nn.Module) -> None:
    """Let a module tell the `Functional` module that calls it when its forward begins and ends."""
    module.register_forward_pre_hook(_enter)
    module.register_forward_hook(_leave, always_call=True)  # also where the caller catches its exception


def _enter(module: nn.Module, args: Any) -> None:
    if calls := _innermost():
        calls.inside += 1


def _leave(module: nn.Module, args: Any, output: Any) -> None:
    if calls := _innermost():
        calls.inside -= 1


# `has_forward_hooks` does not count them: they neither read nor change what the module computes.
_enter.is_silent = _leave.is_silent = True  # type: ignore[attr-defined]


def _innermost() -> _OwnCalls | None:
    found = [mode for mode in function_modes() if isinstance(mode, _OwnCalls)]
    return found[-1] if found else None

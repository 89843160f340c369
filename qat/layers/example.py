"""Run a model once on an example, listen to its modules, and leave the model as it was."""

import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin

from qat.layers.private_random import PrivateRandom
from qat.layers.unset import without_warnings
from qat.module_state import call_on, hook_forwards, preserve_modes
from qat.torch_private import tensors_in

UNSUPPORTED: tuple[tuple[type, str, str], ...] = (
    (LazyModuleMixin, "lazy modules have no weights yet", "run the model on a batch first"),
    (torch.jit.ScriptModule, "TorchScript cannot be looked into", "take the module it was made from"),
    (nn.DataParallel, "DataParallel cannot be looked into", "take the module inside"),
)


class Listener(Protocol):
    """A context manager around the run of an example, which is told of each module that runs.

    `enter` is called before a module's forward and `leave` after it; a result of `leave` other than None
    replaces the output. `path` holds the names of the modules that are running, outermost first.
    """

    path: list[str]

    def __enter__(self) -> Any: ...
    def __exit__(self, *error: Any) -> Any: ...
    def enter(self, name: str, module: nn.Module, inputs: list[Any]) -> None: ...
    def leave(self, name: str, module: nn.Module, inputs: list[Any], output: Any) -> Any: ...


def run_example(
    model: nn.Module, args: tuple[Any, ...], buffers: dict[str, Tensor], training: bool, listener: Listener
) -> Any:
    """The model's output, computed without grad and on `buffers`, which are copies of its own.

    `training` is the mode in which it runs; modules that drop whole branches always run in eval mode.
    Afterwards the model's mode, buffers and hooks and the random state are as before. Autocast is off, so
    that the result does not depend on where the function is called.
    """
    kinds = {"cpu", *(x.device.type for x in tensors_in(args))}
    listener.path.clear()
    with preserve_modes(model), without_warnings(model), _hooked(model, listener):
        model.train(training)
        for module in model.modules():
            if type(module).__name__ in ("StochasticDepth", "DropPath"):
                module.eval()
        try:
            with ExitStack() as stack:
                for kind in filter(torch.amp.is_autocast_available, kinds):
                    stack.enter_context(torch.autocast(kind, enabled=False))
                for context in (torch.no_grad(), PrivateRandom(), _uncompiled(), listener):
                    stack.enter_context(context)
                return call_on(model, buffers, args)
        except Exception as error:  # a user-defined model may raise anything
            name = listener.path[-1] if listener.path else ""
            where = f"{name or 'the model itself'} ({type(model.get_submodule(name)).__name__})"
            error_kind = "" if isinstance(error, (RuntimeError, ValueError)) else f"{type(error).__name__}: "
            raise ValueError(f"the example does not run through {where}: {error_kind}{error}") from error


def check_model(model: Any) -> None:
    """Raise ValueError for what is no module, or holds one without weights or that cannot be looked into."""
    if isinstance(model, type):
        raise ValueError(f"model must be an nn.Module, got the class {model.__name__}; make one of it first")
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be an nn.Module, got {type(model).__name__}")
    for kind, rule, remedy in UNSUPPORTED:
        names = [n or "the model itself" for n, module in model.named_modules() if isinstance(module, kind)]
        if names:
            raise ValueError(f"{rule}: {', '.join(names)}; {remedy}")


def check_trainable(model: nn.Module) -> None:
    """Raise ValueError if the model was built in inference mode, so that its tensors do not train."""
    for name, x in [*model.named_parameters(), *model.named_buffers()]:
        if x.is_inference():
            raise ValueError(f"{name} was made in inference mode and does not train; build the model outside")


def arguments(example: Any, at_least: int) -> tuple[Any, ...]:
    """The example as a tuple of arguments, of which the first is a batch of `at_least` samples."""
    args = example if isinstance(example, tuple) else (example,)
    if not args or not isinstance(args[0], Tensor):
        got = type(args[0]).__name__ if args else "nothing"
        raise ValueError(f"example must be a tensor, or a tuple that starts with one; got {got}")
    for x in tensors_in(args):
        if x.layout != torch.strided or x.is_complex() or x.is_meta:
            got = f"{x.layout} tensor of {x.dtype} on {x.device}"
            raise ValueError(f"example must hold dense real tensors, got a {got}; give it values as floats")
    samples = len(args[0]) if args[0].dim() else 0
    if samples < at_least:
        need = f"{at_least} sample{'s' if at_least > 1 else ''}"
        why = ": BatchNorm needs two" if at_least > 1 else ""
        raise ValueError(f"example must start with a batch of at least {need}, got {samples}{why}")
    return args


def _uncompiled() -> AbstractContextManager[Any]:
    """Run compiled parts eagerly, because the compiler would also compile the listener."""
    # Loading the compiler takes seconds; where it is not loaded, nothing was compiled.
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _hooked(model: nn.Module, listener: Listener) -> AbstractContextManager[None]:
    def before(name: str, module: nn.Module, inputs: list[Any]) -> None:
        listener.path.append(name)
        listener.enter(name, module, inputs)

    def after(name: str, module: nn.Module, inputs: list[Any], output: Any) -> Any:
        replaced = listener.leave(name, module, inputs, output)
        listener.path.pop()
        return replaced

    return hook_forwards(model, before, after)

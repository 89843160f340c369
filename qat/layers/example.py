"""Run a model once on an example, look on, and leave no trace."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._pytree import tree_leaves

from qat.module_state import call_on

UNFIT: tuple[tuple[type, str, str], ...] = (
    (LazyModuleMixin, "lazy modules have no weights yet", "run the model on a batch first"),
    (torch.jit.ScriptModule, "TorchScript cannot be looked into", "take the module it was made from"),
    (nn.DataParallel, "DataParallel cannot be looked into", "take the module inside"),
)


class Watch(Protocol):
    """Who looks on while an example runs; `path` names the modules that are running, outermost first."""

    path: list[str]

    def enter(self, name: str, module: nn.Module, inputs: list[Any]) -> None:
        """A module begins to run."""

    def leave(self, name: str, module: nn.Module, inputs: list[Any], output: Any) -> Any:
        """A module ran; what is returned takes the place of its output, unless it is None."""


def run_example(
    model: nn.Module,
    args: tuple[Any, ...],
    buffers: dict[str, Tensor],
    training: bool,
    watch: Watch,
    mode: AbstractContextManager[Any],
) -> Any:
    """The model's output, computed without grad and on copies of its buffers.

    Afterwards the model's mode, buffers and hooks and the random state are as before.

    Args:
        model: any module.
        args: its arguments.
        buffers: copies of its buffers, of `qat.module_state.copy_buffers`.
        training: the mode in which it runs.
        watch: is told of every module that begins and ends.
        mode: entered around the run.

    Raises:
        ValueError: the model does not run on the example, because of a shape, say; the message names the
            layer, and quotes torch.
    """
    devices = sorted({x.device.index for x in tensors(args) if x.device.type == "cuda"})
    watch.path.clear()
    with _modes_kept(model), _hooked(model, watch):
        model.train(training)
        for module in model.modules():
            if type(module).__name__ in ("StochasticDepth", "DropPath"):  # dropout of whole branches
                module.eval()
        try:
            with torch.no_grad(), torch.random.fork_rng(devices), _uncompiled(), mode:
                return call_on(model, buffers, args)
        except Exception as error:  # whatever a foreign model makes of an example
            kind = "" if isinstance(error, (RuntimeError, ValueError)) else f"{type(error).__name__}: "
            raise ValueError(
                f"the example does not run through {_last(model, watch)}: {kind}{error}"
            ) from error


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in a nest of tuples, lists and dicts."""
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def check_model(model: Any) -> None:
    """Refuse what no example can be run through while somebody looks on.

    Raises:
        ValueError: it is no module, or a module in it has no weights yet or cannot be looked into.
    """
    if isinstance(model, type):
        raise ValueError(f"model must be an nn.Module, got the class {model.__name__}; make one of it first")
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be an nn.Module, got {type(model).__name__}")
    for kind, rule, remedy in UNFIT:
        names = [n or "the model itself" for n, module in model.named_modules() if isinstance(module, kind)]
        if names:
            raise ValueError(f"{rule}: {', '.join(names)}; {remedy}")


def arguments(example: Any, at_least: int) -> tuple[Any, ...]:
    """The example as a tuple of arguments, of which the first is a batch.

    Args:
        example: what the user gave.
        at_least: how many samples the batch must have.

    Raises:
        ValueError: it does not start with such a batch, or a tensor in it is sparse, complex or on `meta`.
    """
    args = example if isinstance(example, tuple) else (example,)
    if not args or not isinstance(args[0], Tensor):
        got = type(args[0]).__name__ if args else "nothing"
        raise ValueError(f"example must be a tensor, or a tuple that starts with one; got {got}")
    for x in tensors(args):
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
    """Compiled parts run as they were written, or the compiler would look at who looks on."""
    # Where nothing was compiled the compiler is not loaded, which takes seconds.
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _last(model: nn.Module, watch: Watch) -> str:
    name = watch.path[-1] if watch.path else ""
    kind = type(model.get_submodule(name)).__name__
    return f"{name} ({kind})" if name else f"the model itself ({kind})"


@contextmanager
def _modes_kept(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def _hooked(model: nn.Module, watch: Watch) -> Iterator[None]:
    hooks = []

    def enter(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        watch.path.append(name)
        watch.enter(name, module, [*args, *kwargs.values()])

    def leave(
        name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        replaced = watch.leave(name, module, [*args, *kwargs.values()], output)
        watch.path.pop()
        return replaced

    for name, module in model.named_modules():
        hooks += [
            module.register_forward_pre_hook(_named(enter, name), with_kwargs=True),
            # First, so that what other hooks do to the output is seen as done to it.
            module.register_forward_hook(_named(leave, name), prepend=True, with_kwargs=True),
        ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _named(hook: Any, name: str) -> Any:
    return lambda *args: hook(name, *args)

"""The state of a module: copies of its buffers, its modes restored, hooks around a run on copies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


def copy_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Copies of all buffers, by name; a tensor that is registered twice has one copy."""
    copies: dict[Tensor, Tensor] = {}
    return {
        name: copies.setdefault(buffer, buffer.clone())
        for prefix, part in module.named_modules()
        for name, buffer in part.named_buffers(prefix, recurse=False, remove_duplicate=False)
    }


@torch.library.custom_op("qat::snapshot", mutates_args=())
def snapshot(x: Tensor) -> Tensor:
    """A copy of a buffer that a compiled graph keeps for its backward.

    Without it the compiler may compute anew there what depends on the buffer, from its value at the end.
    """
    return x.clone()


@snapshot.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def call_on(
    module: nn.Module,
    buffers: Mapping[str, Tensor | None],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """`module(*args, **kwargs)` with other tensors, or None, in place of the named buffers (or parameters).

    The module writes to these tensors; its own stay untouched.
    """
    # If a module is registered under two names, `copy_buffers` lists its buffers under both. With tie_weights
    # torch would replace such a buffer twice, and at the end restore the copy instead of the buffer.
    return functional_call(
        module, dict[str, Any](buffers), tuple(args), dict(kwargs or {}), tie_weights=False
    )


@contextmanager
def preserve_modes(module: nn.Module) -> Iterator[None]:
    """Restore the mode (training or eval) of each submodule when the block ends."""
    modes = {part: part.training for part in module.modules()}
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


@contextmanager
def hook_forwards(
    module: nn.Module,
    before: Callable[[str, nn.Module, list[Any]], None],
    after: Callable[[str, nn.Module, list[Any], Any], Any],
) -> Iterator[None]:
    """Call functions around the forward of each submodule, and remove them when the block ends.

    They are called in this thread alone; the model may run in others meanwhile.

    Args:
        module: the root, whose name is empty.
        before: called with the submodule's name, the submodule and its inputs.
        after: called with the same and the output; a result other than None replaces the output.
    """

    thread = get_ident()

    # Another thread may call a hook that is registered only half, without the keyword arguments.
    def pre_hook(name: str, part: nn.Module, args: tuple[Any, ...], *kwargs: dict[str, Any]) -> None:
        if get_ident() == thread:
            before(name, part, [*args, *kwargs[0].values()])

    def hook(name: str, part: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
        if get_ident() != thread:
            return None
        kwargs, output = rest
        return after(name, part, [*args, *kwargs.values()], output)

    handles = []
    for name, part in module.named_modules():
        handles += [
            part.register_forward_pre_hook(partial(pre_hook, name), with_kwargs=True),
            # Before other hooks, so that `after` gets the output of the forward itself.
            part.register_forward_hook(partial(hook, name), prepend=True, with_kwargs=True),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

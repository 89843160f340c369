"""The state of a module kept as it is: its buffers, and the mode of each of its parts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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


def call_on(
    module: nn.Module,
    buffers: Mapping[str, Tensor],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """`module(*args, **kwargs)` with other tensors in place of the named buffers (or parameters).

    The module writes to these tensors; its own stay untouched.
    """
    # `copy_buffers` names each slot once. With tie_weights torch would fill a slot of a module that is
    # registered twice two times over, and put the copy back at the end.
    return functional_call(module, dict(buffers), tuple(args), dict(kwargs or {}), tie_weights=False)


@contextmanager
def preserve_modes(module: nn.Module) -> Iterator[None]:
    """Restore the mode (training or eval) of each submodule when the block ends."""
    modes = {part: part.training for part in module.modules()}
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training

"""Run a module on copies of its buffers, so that the pass moves nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def copy_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Copies of all buffers, by name; a tensor that is registered twice has one copy."""
    copies: dict[Tensor, Tensor] = {}
    return {
        f"{prefix}.{name}" if prefix else name: copies.setdefault(buffer, buffer.clone())
        for prefix, part in module.named_modules()
        for name, buffer in part._buffers.items()
        if buffer is not None
    }


def call_on(
    module: nn.Module,
    buffers: Mapping[str, Tensor],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """`module(*args, **kwargs)` with other tensors in the place of the named buffers (or parameters).

    What the module writes goes to them; its own are untouched.
    """
    # `copy_buffers` names each slot once. With tie_weights torch would fill a slot of a module that is
    # registered twice two times over, and put the copy back at the end.
    return functional_call(module, dict(buffers), tuple(args), dict(kwargs or {}), tie_weights=False)

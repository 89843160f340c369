"""The private names of torch that have no public counterpart, all in one place.

`tests/test_torch_private.py` checks each of them, and names the release of torch that they were checked with.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import _get_current_function_mode_stack as function_modes
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

__all__ = [
    "StorageWeakRef",
    "TorchDispatchMode",
    "empty_buffers",
    "function_modes",
    "has_forward_hooks",
    "has_hooks_without_kwargs",
    "innermost_saved_tensors_hooks",
    "storage_identity",
    "tensors_in",
    "tree_flatten",
    "tree_leaves",
    "tree_unflatten",
    "version_of",
    "without_torch_function",
]


def tensors_in(tree: Any) -> list[Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def version_of(x: Tensor) -> int:
    """How often the tensor was changed in place; its views count too."""
    return x._version


def storage_identity(x: Tensor) -> int:
    """A number that no other storage has while this one exists; 0 for layouts that have no storage."""
    return x.untyped_storage()._cdata if x.layout == torch.strided else 0


def empty_buffers(module: nn.Module) -> list[str]:
    """The names of the buffers that are registered as None."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        for name, buffer in part._buffers.items()
        if buffer is None
    ]


def has_forward_hooks(module: nn.Module) -> bool:
    """Whether hooks or pre-hooks are registered on the module's forward, but for those that are silent."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return not all(getattr(hook, "is_silent", False) for hook in hooks)


def has_hooks_without_kwargs(module: nn.Module) -> bool:
    """Whether a hook or pre-hook on the module's forward does not see its keyword arguments."""
    plain = module._forward_hooks.keys() - module._forward_hooks_with_kwargs.keys()
    return bool(plain or module._forward_pre_hooks.keys() - module._forward_pre_hooks_with_kwargs.keys())


def innermost_saved_tensors_hooks() -> tuple[Callable[[Any], Any], Callable[[Any], Any]] | None:
    """The `(pack, unpack)` hooks that autograd would call now; None where there are none."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False)


@contextmanager
def without_torch_function() -> Iterator[None]:
    """No `TorchFunctionMode` sees the functions that are called inside."""
    with torch._C.DisableTorchFunction():
        yield

"""Checkpoint the blocks of a model by their names."""

from collections.abc import Sequence

from torch import nn

from qat.memory.checkpoint import Checkpointed, is_called
from qat.names import match_names


def checkpoint_blocks(model: nn.Module, patterns: Sequence[str]) -> nn.Module:
    """Make the named blocks of a model `Checkpointed`, in place, and return it. Call it after `quantize`.

    Args:
        model: the model that holds the blocks.
        patterns: globs over module names. Where a glob matches a module and parts of it (`blocks.*`), only
            the outermost module is checkpointed.

    Raises:
        ValueError: a pattern matches no module (the message lists the nearest names) or only modules that are
            never called, such as `nn.ModuleList`; a block is checkpointed already or would lie inside another
            one, or a layer in it folds a BatchNorm outside of it. In the forward: a block is an
            `nn.Sequential` whose parent calls its parts instead.
    """
    if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
        raise ValueError(f"checkpoint patterns must be a list of globs like ['blocks.*']; got {patterns!r}")
    modules = {name: module for name, module in model.named_modules() if name}
    chosen: dict[str, nn.Module] = {}
    for pattern in patterns:
        found = match_names(pattern, modules, "checkpoint pattern")
        matches = [name for name in found if is_called(modules[name])]
        if not matches:
            kind, instead = type(modules[found[0]]).__name__, [f"{name}.*" for name in found]
            raise ValueError(
                f"checkpoint pattern {pattern!r} has no effect: a {kind} is never called itself; "
                f"use {instead} for its parts"
            )
        chosen |= {name: modules[name] for name in matches if not _container(name, matches)}
    done = [name for name, module in modules.items() if isinstance(module, Checkpointed)]
    for name, block in chosen.items():
        if name in done:
            raise ValueError(f"block {name!r} is checkpointed already; once is enough")
        # By the time of the backward, the statistics of a BatchNorm outside of the block have moved.
        parts = set(block.modules())
        if any(not parts.issuperset(getattr(part, "external_modules", ())) for part in parts):
            raise ValueError(
                f"block {name!r} holds a layer that folds a BatchNorm which is not in the block; checkpoint "
                "the module that holds both"
            )
    blocks = [*chosen, *done]
    for name in blocks:
        if outer := _container(name, blocks):
            raise ValueError(
                f"block {name!r} would be checkpointed inside block {outer!r}; checkpoint one of the two"
            )
    for block in chosen.values():
        Checkpointed(block)
    return model


def _container(name: str, names: Sequence[str]) -> str | None:
    """The first of the names whose module contains the module `name`."""
    return next((other for other in names if name.startswith(other + ".")), None)

"""Checkpoint the blocks of a model by their names."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from qat.memory.checkpoint import NOT_RUN, Checkpointed, is_called
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
            one, or a layer in it folds a BatchNorm outside of it. In the model's first forward in training
            mode and with grad: no block of a pattern was called. (A compiled forward does not find that.)
    """
    if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
        raise ValueError(f"checkpoint patterns must be a list of globs like ['blocks.*']; got {patterns!r}")
    modules = {name: module for name, module in model.named_modules() if name}
    chosen: dict[str, nn.Module] = {}
    by_pattern: dict[str, dict[str, nn.Module]] = {}
    for pattern in patterns:
        found = match_names(pattern, modules, "checkpoint pattern")
        matches = [name for name in found if is_called(modules[name])]
        if not matches:
            kind, instead = type(modules[found[0]]).__name__, [f"{name}.*" for name in found]
            raise ValueError(
                f"checkpoint pattern {pattern!r} has no effect: a {kind} is never called itself; "
                f"use {instead} for its parts"
            )
        by_pattern[pattern] = {name: modules[name] for name in matches if not _container(name, matches)}
        chosen |= by_pattern[pattern]
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
        setattr(block, NOT_RUN, True)
    UnusedPatterns(model, by_pattern)
    return model


class UnusedPatterns:
    """A hook after the model's forward that refuses patterns without effect, and then removes itself.

    Args:
        model: on whose forward it is registered.
        blocks: of each pattern, by their names.
    """

    def __init__(self, model: nn.Module, blocks: Mapping[str, Mapping[str, nn.Module]]) -> None:
        self.blocks = blocks
        self.handle = model.register_forward_hook(self)

    def __call__(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling() or not (model.training and torch.is_grad_enabled()):
            return
        for pattern, blocks in self.blocks.items():
            if all(hasattr(block, NOT_RUN) for block in blocks.values()):
                name, block = next(iter(blocks.items()))
                why = f"the forward does not call {name}"
                if any(block.children()):
                    why = f"the forward calls the parts of {name} and not {name} itself; use '{pattern}.*'"
                raise ValueError(f"checkpoint pattern {pattern!r} has no effect, because {why}")
        for blocks in self.blocks.values():
            for block in blocks.values():
                vars(block).pop(NOT_RUN, None)  # a branch or a dropped layer may not have run
        self.handle.remove()


def _container(name: str, names: Sequence[str]) -> str | None:
    """The first of the names whose module contains the module `name`."""
    return next((other for other in names if name.startswith(other + ".")), None)

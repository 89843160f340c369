"""Blocks that keep their input alone and run again in the backward, with nothing moved twice."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from qat.names import match_names

SHARED = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_version")


class Checkpointed(nn.Module):
    """A block whose activations are recomputed in the backward (Chen et al. 2016, section 3).

    In training the block runs on its input and only the input is kept. In the backward it runs again on
    copies of the buffers as they were before the first run, with the random numbers of the first run: the
    second pass computes the same to the last bit, and observers, BatchNorm statistics and counters move
    once. In eval mode or without grad the block is just called.

    The wrapper shares the block's parameters, buffers and children under their own names, so that keys of
    `state_dict`, patterns and .ckpt files are those of the plain model.

    Args:
        block: any module; its state must live in parameters and buffers.

    Shape: the block's.
    """

    block: nn.Module

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        for name in SHARED:
            self.__dict__[name] = getattr(block, name)
        self.__dict__["block"] = block  # past nn.Module's registration: it would give every key a prefix
        self.training = block.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Shape: the block's."""
        if not (self.training and torch.is_grad_enabled()):
            return self.block(*args, **kwargs)
        before = _copies(dict(self.block.named_buffers()))
        runs = 0

        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal runs
            runs += 1
            if runs == 1:
                return self.block(*args, **kwargs)
            return functional_call(self.block, _copies(before), args, kwargs)

        return checkpoint(run, *args, use_reentrant=False, **kwargs)

    def train(self, mode: bool = True) -> "Checkpointed":
        self.block.training = mode
        super().train(mode)
        return self

    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.block._save_to_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.block._load_from_state_dict(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "block" not in self.__dict__:  # while being unpickled
                raise
            return getattr(self.block, name)

    def _get_name(self) -> str:
        return f"Checkpointed {self.block._get_name()}"


def _copies(buffers: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in buffers.items()}


def checkpoint_blocks(model: nn.Module, patterns: Sequence[str]) -> nn.Module:
    """Make the named blocks of a model `Checkpointed`, in place, and return it. Call it after `quantize`.

    Args:
        model: the model that holds the blocks.
        patterns: globs over module names. Where a glob matches a module and parts of it (`blocks.*`), the
            outermost is meant.

    Raises:
        ValueError: a pattern matches no module (the nearest names are listed), or a block would lie inside
            another checkpointed block.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    chosen: list[str] = []
    for pattern in patterns:
        matches = match_names(pattern, modules, "checkpoint pattern")
        chosen += [name for name in matches if not _inside(name, matches) and name not in chosen]
    done = [name for name, module in modules.items() if isinstance(module, Checkpointed)]
    for name in chosen:
        outer = _inside(name, [*chosen, *done])
        inner = next((other for other in done if other == name or _inside(other, [name])), None)
        if outer or inner:
            raise ValueError(
                f"block {inner or name!r} would be checkpointed inside block {outer or name!r}; "
                "checkpoint one of the two"
            )
    for name in chosen:
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, Checkpointed(modules[name]))
    return model


def _inside(name: str, names: Sequence[str]) -> str | None:
    """The first of the names that contains `name`."""
    return next((other for other in names if name.startswith(other + ".")), None)

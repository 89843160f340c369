"""Notice a checkpointed `nn.Sequential` whose parent calls its parts instead of the block itself."""

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn


class WatchedSequential(nn.Sequential):
    """Comes before `nn.Sequential` in the bases of a checkpointed one.

    Parts that another module's forward takes out of the block in training are watched. If such a part is then
    called although the block does not run, checkpointing the block has no effect, and ValueError is raised.
    """

    def __iter__(self) -> Iterator[nn.Module]:
        parts = list(super().__iter__())
        if _is_checkpointing(self):
            _watch(self, parts, sys._getframe(1))
        return iter(parts)

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        parts = dict(super().named_children())
        if _is_checkpointing(self):
            _watch(self, list(parts.values()), sys._getframe(1))
        return iter(parts.items())

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if not isinstance(index, slice) and _is_checkpointing(self):
            _watch(self, [found], sys._getframe(1))
        return found


def _watch(block: nn.Module, parts: list[nn.Module], caller: FrameType) -> None:
    if not _runs(block, caller) and any(frame.f_code.co_name == "_call_impl" for frame in _stack(caller)):
        for part in parts:
            PartWatch(block, part)


class PartWatch:
    """A hook before the next call of a part."""

    def __init__(self, block: nn.Module, part: nn.Module) -> None:
        self.block = block
        self.handle = part.register_forward_pre_hook(self)

    def __call__(self, *_: Any) -> None:
        if not _is_checkpointing(self.block):
            return
        self.handle.remove()
        if not _runs(self.block, sys._getframe(1)):
            raise ValueError(
                f"{type(self.block).__name__} has no effect, because its parent calls its parts instead of "
                "the block; checkpoint the parts, as with the pattern 'blocks.*' in place of 'blocks'"
            )


def _is_checkpointing(block: nn.Module) -> bool:
    return not torch.compiler.is_compiling() and block.training and torch.is_grad_enabled()


def _runs(block: nn.Module, frame: FrameType) -> bool:
    """Whether the block's own forward is among the calling functions."""
    return any(f.f_code.co_name == "forward" and f.f_locals.get("self") is block for f in _stack(frame))


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back

"""Blocks that keep their input alone and run again in the backward, with nothing moved twice."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from torch.utils.checkpoint import checkpoint

from qat.memory.packing import TwoPasses
from qat.module_state import call_on, copy_buffers


class Checkpointed(nn.Module):
    """A block whose activations are recomputed in the backward (Chen et al. 2016, section 3).

    In training the block runs on its input and only the input is kept. In the backward it runs again on
    copies of the buffers as they were before the first run, in the modes and with the random numbers of the
    first run: the second pass computes the same to the last bit, and observers, BatchNorm statistics and
    counters move once. In eval mode or without grad the block is just called.

    `Checkpointed(block)` returns the block itself, of a class that is a `Checkpointed` and its own: names,
    keys, hooks, attributes and .ckpt files are those of the plain model. Forward hooks on parts of the block
    run in both passes.

    Args:
        block: any module. Its state must live in parameters and buffers, and it must not write into its
            input.

    Shape: the block's; tensors may come and go in tuples, lists and dicts.

    Raises:
        ValueError: the block is checkpointed already; in the forward, where it returns what is no tensor.
        RuntimeError: in the forward, where the block changes its input in place; in the backward, where a
            parameter of the block changed since.
    """

    is_checkpointed: ClassVar[bool] = True  # for `quantize`, which must come before

    def __new__(cls, block: nn.Module) -> Any:
        if isinstance(block, Checkpointed):
            raise ValueError("the block is checkpointed already; once is enough")
        block.__class__ = _checkpointed(type(block))
        return block

    def __init__(self, block: nn.Module) -> None:
        pass  # the block is built; Python calls this on what `__new__` returned

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Shape: the block's."""
        if not (self.training and torch.is_grad_enabled()):
            return super().forward(*args, **kwargs)
        if torch.compiler.is_compiling():
            return self._compiled(*args, **kwargs)
        body = _Body(self)
        buffers = copy_buffers(body)
        modes = {part: part.training for part in self.modules()}
        # One flat list: torch's checkpoint saves the tensors among its own arguments only.
        leaves, form = tree_flatten((args, kwargs))
        packing = TwoPasses(leaves)
        weights = [(name, p, p._version) for name, p in self.named_parameters()]
        empty = [(part, name) for part in self.modules() for name, b in part._buffers.items() if b is None]
        runs = 0

        def run(*leaves: Any) -> Any:
            nonlocal runs
            runs += 1
            args, kwargs = tree_unflatten(leaves, form)
            if runs == 1:
                with packing.first():
                    return body(*args, **kwargs)
            changed = [name for name, p, version in weights if p._version != version]
            if changed:
                raise RuntimeError(
                    f"{self._get_name()} runs again in the backward, but its {changed[0]} changed since the "
                    "forward; call backward before the optimizer steps or a state is loaded"
                )
            # Copies again: with retain_graph there may be a third run.
            again = {name: buffer.clone() for name, buffer in buffers.items()}
            with _modes(modes), _emptied(empty), packing.second(leaves):
                return call_on(body, again, args, kwargs)

        versions = [x._version for x in leaves if isinstance(x, Tensor)]
        output = checkpoint(run, *leaves, use_reentrant=False)
        if versions != [x._version for x in leaves if isinstance(x, Tensor)]:
            raise RuntimeError(
                f"{self._get_name()} changes its input in place, and would be run again on the changed one; "
                "use inplace=False in it, or leave it unchecked"
            )
        for x in tree_leaves(output):
            if x is not None and not isinstance(x, Tensor):
                raise ValueError(
                    f"{self._get_name()} returns a {type(x).__name__}; a checkpointed block must return "
                    "tensors, alone or in tuples, lists and dicts"
                )
        return output

    def _compiled(self, *args: Any, **kwargs: Any) -> Any:
        """The same in a graph of `torch.compile`, which takes neither hooks nor calls on other buffers.

        A compiler writes buffers when the graph has run, but its second pass would then read the written
        ones. So the block runs on copies, whose values before the first pass belong to the graph.
        """
        owned = [
            (part, name, b) for part in self.modules() for name, b in part._buffers.items() if b is not None
        ]
        copies = [_snapshot(b) for _, _, b in owned]
        for (part, name, _), copy in zip(owned, copies, strict=True):
            setattr(part, name, copy)
        output = checkpoint(super().forward, *args, use_reentrant=False, **kwargs)
        for (part, name, b), copy in zip(owned, copies, strict=True):
            setattr(part, name, b)
            b.copy_(copy)
        return output

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # The class was made here, so it has no importable name: copies and pickles make it anew.
        return _blank, (type(self).__mro__[2],), self.__getstate__()


@torch.library.custom_op("qat::snapshot", mutates_args=())
def _snapshot(x: Tensor) -> Tensor:
    """A copy that a compiler keeps for the second pass: it would make a clone anew, of the written buffer."""
    return x.clone()


@_snapshot.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class _Body(nn.Module):
    """What a checkpointed block does: its own forward, past the one that checkpoints."""

    def __init__(self, block: Checkpointed) -> None:
        super().__init__()
        self.block = block

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super(Checkpointed, self.block).forward(*args, **kwargs)


_CLASSES: dict[type[nn.Module], Any] = {}


def _checkpointed(base: type[nn.Module]) -> Any:
    if base not in _CLASSES:
        _CLASSES[base] = type(f"Checkpointed{base.__name__}", (Checkpointed, base), {})
    return _CLASSES[base]


def _blank(base: type[nn.Module]) -> Any:
    return object.__new__(_checkpointed(base))


@contextmanager
def _modes(modes: dict[nn.Module, bool]) -> Iterator[None]:
    """Modules in the modes given; afterwards in those that they were in."""
    before = {module: module.training for module in modes}
    try:
        for module, training in modes.items():
            module.training = training
        yield
    finally:
        for module, training in before.items():
            module.training = training


@contextmanager
def _emptied(slots: Sequence[tuple[nn.Module, str]]) -> Iterator[None]:
    """Buffers that were None are so again; afterwards they hold what they held."""
    before = [part._buffers[name] for part, name in slots]
    try:
        for part, name in slots:
            part._buffers[name] = None
        yield
    finally:
        for (part, name), buffer in zip(slots, before, strict=True):
            part._buffers[name] = buffer

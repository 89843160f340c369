"""Blocks that save only their input and run again in the backward, without changing their state twice."""

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from qat.memory.packing import CheckpointPacking
from qat.memory.versions import RecomputedVersions
from qat.module_state import call_on, copy_buffers, preserve_modes, snapshot
from qat.quantizers import Scale
from qat.swapped_class import SwappedClass, swap_class
from qat.torch_private import empty_buffers, tensors_in, tree_flatten, tree_leaves, tree_unflatten, version_of

NOT_RUN = "has_not_run"  # the name of an attribute that a block loses at its first forward


class Checkpointed(SwappedClass):
    """A block whose activations are recomputed in the backward (Chen et al. 2016, section 3).

    In training, the block runs on its input and only the input is saved. In the backward it runs again, with
    copies of the buffers as they were before the first pass, and in the modes and with the random numbers of
    the first pass. So the second pass computes the same to the last bit, while observers, BatchNorm
    statistics and counters change only once. In eval mode or without grad the block is simply called.

    `Checkpointed(block)` returns the block itself; its new class derives from `Checkpointed` and from its old
    class. Names, keys, hooks, attributes and .ckpt files are those of the plain model. Forward hooks on parts
    of the block run in both passes.

    Args:
        block: any module. Its state must be in its parameters and buffers, and it must not change its input
            in place.

    Shape: the block's; its inputs and outputs may be tensors in nested tuples, lists and dicts.

    Raises:
        ValueError: the block is checkpointed already; in the forward, if it returns anything but tensors.
        RuntimeError: in the forward, if the block changes its input in place; in the backward, if a parameter
            of the block, or a tensor that it saves or reads, has changed in place since the forward.
    """

    is_checkpointed: ClassVar[bool] = True  # `quantize` refuses modules that have this attribute

    def __new__(cls, block: nn.Module) -> Any:
        if isinstance(block, Checkpointed):
            raise ValueError("the block is checkpointed already; once is enough")
        if not is_called(block):
            raise ValueError(f"a {type(block).__name__} is never called itself; checkpoint its parts")
        swap_class(block, cls)
        return block

    def __init__(self, block: nn.Module) -> None:
        pass  # Python calls this on the block that `__new__` returned, which is initialized already

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Shape: the block's."""
        if not torch.compiler.is_compiling():
            vars(self).pop(NOT_RUN, None)
        if not (self.training and torch.is_grad_enabled()):
            return super().forward(*args, **kwargs)
        if torch.compiler.is_compiling():
            return self._compiled(*args, **kwargs)
        kind, body = type(self).__name__, _Body(self)
        buffers = copy_buffers(body)
        empty = dict.fromkeys(empty_buffers(body))
        modes = {part: part.training for part in self.modules()}
        # One flat list, because torch's checkpoint saves only the tensors that are arguments themselves.
        leaves, structure = tree_flatten((args, kwargs))
        packing, checks = CheckpointPacking(leaves), RecomputedVersions(kind, leaves)
        parameters = [(name, p, version_of(p)) for name, p in self.named_parameters()]
        passes = 0

        def run(*leaves: Any) -> Any:
            nonlocal passes
            passes += 1
            args, kwargs = tree_unflatten(leaves, structure)
            if passes == 1:
                with checks.first_pass(), packing.first_pass():
                    return body(*args, **kwargs)
            changed = [name for name, p, version in parameters if version_of(p) != version]
            if changed:
                raise RuntimeError(
                    f"{kind} runs again in the backward, but its {changed[0]} changed since the "
                    "forward; call backward before the optimizer steps or a state is loaded"
                )
            # Copy them again, because with retain_graph there may be a third pass.
            again = {name: buffer.clone() for name, buffer in buffers.items()}
            with preserve_modes(self), checks.second_pass(leaves), packing.second_pass(leaves):
                for part, training in modes.items():
                    part.training = training
                return call_on(body, again | empty, args, kwargs)

        inputs = tensors_in(leaves)
        versions = [version_of(x) for x in inputs]
        output = checkpoint(run, *leaves, use_reentrant=False)
        if versions != [version_of(x) for x in inputs]:
            raise RuntimeError(
                f"{kind} changes its input in place, and would run again on the changed input; "
                "use inplace=False in it, or do not checkpoint it"
            )
        for x in tree_leaves(output):
            if x is not None and not isinstance(x, Tensor):
                raise ValueError(
                    f"{kind} returns a {type(x).__name__}; a checkpointed block must return "
                    "tensors, alone or in tuples, lists and dicts"
                )
        return output

    def _compiled(self, *args: Any, **kwargs: Any) -> Any:
        """The same in a graph of `torch.compile`, which supports neither the hooks nor `functional_call`.

        A compiled graph writes buffers at its end, and the second pass would read the written values. So the
        block runs on copies, whose values before the first pass are part of the graph.
        """
        slots = [
            (part, name, x)
            for part in self.modules()
            for name, x in part.named_buffers(recurse=False, remove_duplicate=False)
        ]
        copies = [snapshot(x) for _, _, x in slots]
        for (part, name, _), own_copy in zip(slots, copies, strict=True):
            setattr(part, name, own_copy)
        for part in self.modules():
            if isinstance(part, Scale):
                part.unset = None  # as `observe` does; torch refuses that inside its checkpoint
        try:
            output = checkpoint(super().forward, *args, use_reentrant=False, **kwargs)
        finally:
            for part, name, x in slots:
                setattr(part, name, x)
        for (_, _, x), own_copy in zip(slots, copies, strict=True):
            x.copy_(own_copy)
        return output

    @classmethod
    def members(cls, plain: type[nn.Module]) -> dict[str, Any]:
        return {"__getitem__": _item} if hasattr(plain, "__getitem__") else {}


class _Body(nn.Module):
    """The forward of a checkpointed block's old class."""

    def __init__(self, block: Checkpointed) -> None:
        super().__init__()
        self.block = block

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super(Checkpointed, self.block).forward(*args, **kwargs)


def _item(block: Any, index: Any) -> Any:
    """What a container holds at an index; a slice of a checkpointed container is checkpointed, too."""
    if not isinstance(index, slice):
        return block.plain.__getitem__(block, index)
    vars(block).pop(NOT_RUN, None)  # the slice may run in its place
    # torch's containers make a slice with their own class, which must be the plain one for that.
    plain = copy.copy(block)
    plain.__class__ = block.plain
    return Checkpointed(plain[index])


def is_called(block: nn.Module) -> bool:
    """Whether the module has a forward; an `nn.ModuleList` has none."""
    return type(block).forward is not nn.Module.forward or "forward" in vars(block)

"""Count what autograd keeps for the backward."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from qat.memory.packing import is_packing, packed_activations
from qat.memory.versions import SavedVersion
from qat.module_state import call_on, copy_buffers, hook_forwards, preserve_modes
from qat.torch_private import tree_flatten, tree_unflatten


@dataclass(frozen=True)
class SavedBytes:
    """Bytes that autograd keeps between forward and backward."""

    total: int  # over the whole model
    layers: dict[str, int]  # by module: what its forward saved first; modules that save nothing are absent


@dataclass(eq=False)
class SavedTensor:
    """A tensor that autograd saves, in an object that belongs to the graph alone and is gone with it."""

    tensor: Tensor
    version: SavedVersion


@torch.inference_mode(False)
def saved_bytes(model: nn.Module, batch: Tensor | tuple[Any, ...]) -> SavedBytes:
    """The bytes that the model saves for the backward of one batch in training mode.

    It counts the unique storages that the graph of the output holds, without parameters and buffers; a
    checkpointed block counts with what it holds until its backward. Inside `packed_activations` it counts
    packed tensors at their packed size, without their scales. The model's state and mode and the random
    generators stay as they were.

    Args:
        model: the model as it is trained.
        batch: `(N, C, H, W)`, or a tuple of arguments.
    """
    leaves, structure = tree_flatten(batch if isinstance(batch, tuple) else (batch,))
    # Copies, because a slice would count with the whole tensor that it is a slice of.
    args = tree_unflatten(
        [x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in leaves],
        structure,
    )
    buffers = copy_buffers(model)
    known = {_address(x) for x in [*model.parameters(), *model.buffers(), *buffers.values()]}
    saved: list[tuple[str, ref[SavedTensor]]] = []
    running = [""]

    def pack(x: Tensor) -> SavedTensor:
        # Keep x itself if it has no graph: packing finds out by this tensor whether its codes still exist.
        held = SavedTensor(x.detach() if x.requires_grad else x, SavedVersion(x))
        saved.append((running[-1], ref(held)))
        return held

    def unpack(held: SavedTensor) -> Tensor:
        held.version.check(held.tensor, "change a copy")
        return held.tensor

    def leave(*_: Any) -> None:
        running.pop()

    with (
        _preserved_parameters(model),
        preserve_modes(model),
        hook_forwards(model, lambda name, *_: running.append(name), leave),
        torch.random.fork_rng({p.device.index for p in model.parameters() if p.device.type == "cuda"}),
        torch.enable_grad(),
        saved_tensors_hooks(pack, unpack),
        # Autograd calls only the innermost hooks; those of packing call the hooks around them.
        packed_activations() if is_packing() else nullcontext(),
    ):
        model.train()
        output = call_on(model, buffers, args)
    alive: dict[int, tuple[str, Tensor]] = {}
    for name, reference in saved:
        held = reference()
        if held is not None and _address(held.tensor) not in known:
            alive.setdefault(_address(held.tensor), (name, held.tensor))
    del output
    layers: dict[str, int] = {}
    for name, x in alive.values():
        layers[name] = layers.get(name, 0) + x.untyped_storage().nbytes()
    return SavedBytes(sum(layers.values()), layers)


@contextmanager
def _preserved_parameters(model: nn.Module) -> Iterator[None]:
    """Restore the parameters when the block ends: the first batch initializes learned scales."""
    parameters = [(p, p.detach().clone()) for p in model.parameters()]
    try:
        yield
    finally:
        for parameter, before in parameters:
            if not torch.equal(parameter, before):
                parameter.data.copy_(before)


def _address(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()

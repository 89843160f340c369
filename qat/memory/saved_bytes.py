"""Count what autograd keeps for the backward."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_map_only

from qat.memory.packing import is_packing, packed_activations
from qat.module_state import call_on, copy_buffers


@dataclass(frozen=True)
class SavedBytes:
    """Bytes that autograd keeps between forward and backward.

    Args:
        total: over the whole model.
        layers: by the module in whose forward they were saved first; modules that save nothing are absent.
    """

    total: int
    layers: dict[str, int]


@dataclass(eq=False)
class _Kept:
    """One saved tensor: it lives as long as the graph wants it."""

    tensor: Tensor


def saved_bytes(model: nn.Module, batch: Tensor | tuple[Any, ...]) -> SavedBytes:
    """What the model saves for the backward of one batch in training mode.

    Counted are unique storages that the graph of the output holds, parameters and buffers excluded; a
    checkpointed block counts with what it keeps until its backward. Called inside `packed_activations` it
    counts what is kept there: packed tensors at their packed size, without their scales. The model's state
    and mode and the random generators are left as they were.

    Args:
        model: the model as it trains.
        batch: `(N, C, H, W)`, or a tuple of arguments.
    """
    # A batch of its own: a slice would count with all that it is cut from.
    args = tree_map_only(
        Tensor,
        lambda x: x.detach().clone().requires_grad_(x.requires_grad),
        batch if isinstance(batch, tuple) else (batch,),
    )
    buffers = copy_buffers(model)
    # A learned scale is set by the first batch, in a parameter.
    parameters = [(p, p.detach().clone()) for p in model.parameters()]
    known = {_address(x) for x in [*model.parameters(), *model.buffers(), *buffers.values()]}
    saved: list[tuple[str, ref[_Kept]]] = []
    running = [""]

    def pack(x: Tensor) -> _Kept:
        # The very tensor where it can be: packing shares it as long as it lives.
        kept = _Kept(x.detach() if x.requires_grad else x)
        saved.append((running[-1], ref(kept)))
        return kept

    with (
        _training(model),
        _watch(model, running),
        torch.random.fork_rng(_devices(model)),
        torch.enable_grad(),
        saved_tensors_hooks(pack, lambda kept: kept.tensor),
        # Only the innermost hooks are called; packing hands on to those around it.
        packed_activations() if is_packing() else nullcontext(),
    ):
        output = call_on(model, buffers, args)
    for parameter, before in parameters:
        if not torch.equal(parameter, before):
            parameter.data.copy_(before)
    alive: dict[int, tuple[str, Tensor]] = {}
    for name, kept in saved:
        held = kept()
        if held is not None and _address(held.tensor) not in known:
            alive.setdefault(_address(held.tensor), (name, held.tensor))
    del output
    layers: dict[str, int] = {}
    for name, x in alive.values():
        layers[name] = layers.get(name, 0) + x.untyped_storage().nbytes()
    return SavedBytes(sum(layers.values()), layers)


def _address(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _devices(model: nn.Module) -> list[int]:
    return sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})


@contextmanager
def _training(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    try:
        model.train()
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def _watch(model: nn.Module, running: list[str]) -> Iterator[None]:
    """Keep the name of the module that runs on top of the stack `running`."""

    def leave(*_: Any) -> None:
        running.pop()

    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda *_, name=name: running.append(name)))
        hooks.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()

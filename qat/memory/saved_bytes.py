"""Count what autograd keeps for the backward."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call


@dataclass(frozen=True)
class SavedBytes:
    """Bytes that autograd keeps between forward and backward.

    Args:
        total: over the whole model.
        layers: by the module in whose forward they were saved first; modules that save nothing are absent.
    """

    total: int
    layers: dict[str, int]


def saved_bytes(model: nn.Module, batch: Tensor | tuple[Any, ...]) -> SavedBytes:
    """What the model saves for the backward of one batch in training mode.

    Counted are unique storages, parameters and buffers excluded; a checkpointed block counts with what it
    keeps until its backward. The model's state, mode and the random generators are left as they were.

    Args:
        model: the model as it trains.
        batch: `(N, C, H, W)`, or a tuple of arguments.
    """
    args = batch if isinstance(batch, tuple) else (batch,)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    known = {_storage(x) for x in [*model.parameters(), *model.buffers(), *buffers.values()]}
    counted: dict[int, tuple[str, Tensor]] = {}  # the tensors are kept: a freed storage's address is re-used
    running = [""]

    def pack(x: Tensor) -> Tensor:
        if _storage(x) not in known:
            counted.setdefault(_storage(x), (running[-1], x.detach()))
        return x.detach()  # an output that holds itself through its own graph would never be freed

    modes = {module: module.training for module in model.modules()}
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    try:
        model.train()
        with (
            torch.enable_grad(),
            torch.random.fork_rng(devices),
            _watch(model, running),
            saved_tensors_hooks(pack, lambda x: x),
        ):
            functional_call(model, buffers, args)
    finally:
        for module, training in modes.items():
            module.training = training
    layers: dict[str, int] = {}
    for name, x in counted.values():
        layers[name] = layers.get(name, 0) + x.untyped_storage().nbytes()
    return SavedBytes(sum(layers.values()), layers)


def _storage(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


@contextmanager
def _watch(model: nn.Module, running: list[str]) -> Iterator[None]:
    """Keep the name of the module that runs on top of the stack `running`."""
    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda *_, name=name: running.append(name)))
        hooks.append(module.register_forward_hook(lambda *_: running.pop() and None))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()

"""Saved activations as packed codes: what a quantizer gave is kept in its own bits until the backward."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from qat.memory.storages import CURRENT, Packing, current


@contextmanager
def packed_activations() -> Iterator[None]:
    """Inside it, whatever autograd saves that came out of a quantizer is kept as packed codes.

    A saved tensor on a quantizer's grid takes 16, 8, 4, 2 or 1 bits an element (3 bits take 4; 5 to 7 take 8)
    plus its scale, however many layers read it, also after max-pooling, flattening and zero padding, and as
    both branches of a residual block; masks take one bit. It is unpacked to the identical floats where the
    backward asks for it, so gradients are those without packing to the last bit. All else is kept as it is.
    What a rounding or a subclass of `Quantizer` of one's own gives may be on no grid, and is not packed.
    `Checkpointed` blocks keep the codes of their input, and pack again what their second pass saves.

    The forward belongs inside; the backward may come after. Within other `saved_tensors_hooks` the packed
    tensors are handed on to them. A value that is not a number is not kept as one.

    Raises:
        RuntimeError: in the backward, where a saved tensor that could not be packed was changed in place.
        ValueError: in the forward, where the model is compiled.
    """
    with _active(Packing()):
        yield


@contextmanager
def _active(packing: Packing) -> Iterator[None]:
    token = CURRENT.set(packing)
    hooks = [
        register_module_forward_pre_hook(_refuse_compiled),
        register_module_forward_hook(packing.learn),
    ]
    try:
        with packing, _hooks(packing, computed=True):
            yield
    finally:
        for hook in hooks:
            hook.remove()
        CURRENT.reset(token)
        packing.closed = True


def _refuse_compiled(module: nn.Module, args: tuple[Any, ...]) -> None:
    # By name: the class lies behind an import that takes a second.
    if type(module).__name__ == "OptimizedModule" and current() is not None:
        raise ValueError("packed_activations does not go with torch.compile; call the model uncompiled")


def is_packing() -> bool:
    """Whether this runs inside `packed_activations`."""
    return current() is not None


class TwoPasses:
    """Packing in a block that runs twice: the first pass keeps nothing, but in the kinds of the second.

    Outside of `packed_activations` both passes are what they are.

    Args:
        inputs: of the block; the second pass gets their equals, of which the same is known.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._packing = current()
        self._forms = [self._packing.find(x) if self._packing else None for x in inputs]

    def first(self) -> AbstractContextManager[None]:
        """Around the first pass, inside the hooks that mark what is saved."""
        return _hooks(self._packing, computed=False) if self._packing else nullcontext()

    def second(self, inputs: Sequence[Any]) -> AbstractContextManager[None]:
        """Around the second pass on the inputs, inside the hooks that take what is saved."""
        if self._packing is None:
            return nullcontext()
        packing = Packing(self._packing)
        for x, form in zip(inputs, self._forms, strict=True):
            if form is not None:
                packing.note(x, form)
        return _active(packing)


def _hooks(packing: Packing, computed: bool) -> saved_tensors_hooks:
    # Only the innermost hooks are called: they have to call the enclosing ones, a checkpoint's say.
    pack, unpack = torch._C._autograd._top_saved_tensors_default_hooks(False) or (None, None)
    return saved_tensors_hooks(
        lambda x: packing.pack(x, pack, computed), lambda kept: packing.unpack(kept, unpack)
    )

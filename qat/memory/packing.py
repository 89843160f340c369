"""Pack saved activations: keep the output of a quantizer as codes until the backward."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from qat.memory.storages import CURRENT, Packing, current
from qat.torch_private import innermost_saved_tensors_hooks


@contextmanager
def packed_activations() -> Iterator[None]:
    """Inside it, the outputs of quantizers that autograd saves are kept as packed codes.

    A saved tensor on a quantizer's grid takes 16, 8, 4, 2 or 1 bits an element (3 bits take 4; 5 to 7 take 8)
    plus its scale. It is packed once, however many layers read it, also after max-pooling, flattening and
    zero padding; masks take one bit. It is unpacked to the identical floats when the backward needs it, so
    gradients are those without packing to the last bit. All other tensors are kept as they are, also the
    output of a user-defined rounding or subclass of `Quantizer`, which may lie on no grid. `Checkpointed`
    blocks keep the codes of their input, and pack what their second pass saves.

    Run the forward inside; the backward may come after. Inside other `saved_tensors_hooks` the packed tensors
    are passed on to them. NaN is not preserved.

    Raises:
        RuntimeError: in the backward, if a saved tensor that could not be packed was changed in place.
        ValueError: in the forward, if the model is compiled.
    """
    with _active(Packing()):
        yield


@contextmanager
def _active(packing: Packing) -> Iterator[None]:
    token = CURRENT.set(packing)
    hooks = [
        register_module_forward_pre_hook(_refuse_compiled),
        register_module_forward_hook(packing.record_output),
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
    # By its name, because the import of the class takes a second.
    if type(module).__name__ == "OptimizedModule" and current() is not None:
        raise ValueError("packed_activations does not go with torch.compile; call the model uncompiled")


def is_packing() -> bool:
    """Whether this code runs inside `packed_activations`."""
    return current() is not None


class CheckpointPacking:
    """Packing in a block that runs twice; outside of `packed_activations` it does nothing.

    `torch.utils.checkpoint` keeps nothing of the first pass, but compares the shapes and types of what the
    two passes save. So the first pass saves placeholders of packed tensors, and the second one packs. The
    inputs of the second pass have the same values, so they are on the same grids.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._packing = current()
        self._formats = [self._packing.find(x) if self._packing else None for x in inputs]

    def first_pass(self) -> AbstractContextManager[None]:
        """Enter it around the first pass, inside the hooks of torch's checkpoint."""
        return _hooks(self._packing, computed=False) if self._packing else nullcontext()

    def second_pass(self, inputs: Sequence[Any]) -> AbstractContextManager[None]:
        """Enter it around the second pass on `inputs`, inside the hooks of torch's checkpoint."""
        if self._packing is None:
            return nullcontext()
        packing = Packing(self._packing)
        for x, storage_format in zip(inputs, self._formats, strict=True):
            if storage_format is not None:
                packing.record(x, storage_format)
        return _active(packing)


def _hooks(packing: Packing, computed: bool) -> saved_tensors_hooks:
    # Autograd calls only the innermost hooks, so these have to call the hooks around them.
    pack, unpack = innermost_saved_tensors_hooks() or (None, None)
    return saved_tensors_hooks(
        lambda x: packing.pack(x, pack, computed), lambda saved: packing.unpack(saved, unpack)
    )

"""Autograd's check for saved tensors that were changed in place, which it leaves out under hooks."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from qat.torch_private import (
    StorageWeakRef,
    innermost_saved_tensors_hooks,
    storage_identity,
    tensors_in,
    version_of,
)

MODIFIED = "one of the variables needed for gradient computation has been modified by an inplace operation"


class SavedVersion:
    """The storage of a tensor, and how often the tensor had been changed in place when autograd saved it."""

    __slots__ = ("_storage", "_version")

    def __init__(self, x: Tensor) -> None:
        # While a weak reference exists, no other storage gets the same address.
        self._storage = StorageWeakRef(x.untyped_storage()) if x.layout == torch.strided else None
        self._version = version_of(x)

    def check(self, x: Tensor, remedy: str) -> None:
        """Raise RuntimeError if x has the same storage and was changed in place since; a copy may differ."""
        version = version_of(x)
        if version == self._version or self._storage is None:
            return
        if self._storage.cdata == storage_identity(x):
            raise _modified(x, self._version, version, remedy)


class RecomputedVersions:
    """The check for a block that runs twice: what its second pass saves must not have changed meanwhile.

    Each pass numbers the tensors in the order in which it saves them, which is the same in both.

    Args:
        name: of the block, for messages.
        inputs: of the block; those that are not tensors are ignored.
    """

    def __init__(self, name: str, inputs: Sequence[Any]) -> None:
        self._name = name
        self._inputs = [SavedVersion(x) for x in tensors_in(inputs)]
        self._first: list[SavedVersion] = []
        self._second: list[int] = []  # versions alone, because torch's checkpoint keeps these tensors

    def first_pass(self) -> AbstractContextManager[Any]:
        """Enter it around the first pass, inside the hooks of torch's checkpoint."""
        pack, unpack = _enclosing_hooks()
        first = self._first

        def keep(x: Tensor) -> tuple[int, Any]:
            first.append(SavedVersion(x))
            return len(first) - 1, pack(x)

        def give(saved: tuple[int, Any]) -> Tensor:
            index, content = saved
            try:
                x: Tensor = unpack(content)  # runs the second pass
            except RuntimeError as error:
                if str(error).startswith(MODIFIED) and self._name not in str(error):
                    # Autograd's own check of the block's inputs does not name the block.
                    raise RuntimeError(f"{error} {self._name} needs it to run again.") from None
                raise
            version, expected = version_of(x), self._second[index]
            if version != expected:
                raise _modified(x, expected, version, f"{self._name} saves it; change a copy in the block")
            return x

        return saved_tensors_hooks(keep, give)

    def second_pass(self, inputs: Sequence[Any]) -> AbstractContextManager[Any]:
        """Enter it around the second pass on `inputs`, inside the hooks of torch's checkpoint."""
        for x, before in zip(tensors_in(inputs), self._inputs, strict=True):
            before.check(x, f"{self._name} needs it to run again; change a copy")
        pack, unpack = _enclosing_hooks()
        first, second = self._first, list[int]()
        self._second = second
        remedy = f"{self._name} runs again in the backward and reads it; make it a buffer or an argument"

        def keep(x: Tensor) -> Any:
            # Before `pack`, which ends the pass after the last tensor that is needed.
            first[len(second)].check(x, remedy)
            second.append(version_of(x))
            return pack(x)

        return saved_tensors_hooks(keep, unpack)


def _modified(x: Tensor, expected: int, version: int, remedy: str) -> RuntimeError:
    return RuntimeError(
        f"{MODIFIED}: a tensor of shape {tuple(x.shape)} is at version {version}; expected version "
        f"{expected} instead; {remedy}"
    )


def _enclosing_hooks() -> tuple[Any, Any]:
    # Autograd calls only the innermost hooks, so these have to call the hooks around them.
    hooks = innermost_saved_tensors_hooks()
    assert hooks is not None, "torch's checkpoint installs hooks"
    return hooks

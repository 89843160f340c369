"""Autograd's check for saved tensors that were changed in place, which it leaves out under hooks."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from qat.torch_private import StorageWeakRef, innermost_saved_tensors_hooks, tensors_in, version_of

MODIFIED = "one of the variables needed for gradient computation has been modified by an inplace operation"


class SavedVersion:
    """The memory of a tensor that autograd saves, and how often it had been changed in place by then."""

    def __init__(self, x: Tensor) -> None:
        # While a weak reference exists, no other storage gets the same address.
        self._storage = StorageWeakRef(x.untyped_storage()) if x.layout == torch.strided else id(x)
        self._version = version_of(x)

    def check(self, x: Tensor, remedy: str) -> None:
        """Raise RuntimeError if x lies in the same memory, which was changed in place; a copy may differ."""
        now = SavedVersion(x)
        if now._storage == self._storage and now._version != self._version:
            raise RuntimeError(
                f"{MODIFIED}: a tensor of shape {tuple(x.shape)} is at version {now._version}; expected "
                f"version {self._version} instead; {remedy}"
            )


class RecomputedVersions:
    """The check for a block that runs twice: its second pass saves anew what the first one only counted.

    Args:
        name: of the block, for messages.
        inputs: of the block; those that are not tensors are ignored.
    """

    def __init__(self, name: str, inputs: Sequence[Any]) -> None:
        self._name = name
        self._inputs = [SavedVersion(x) for x in tensors_in(inputs)]
        self._first: list[SavedVersion] = []  # by the order of saving, which is the same in both passes
        self._second: list[SavedVersion] = []

    def first_pass(self) -> AbstractContextManager[Any]:
        """Enter it around the first pass, inside the hooks of torch's checkpoint."""
        pack, unpack = _enclosing_hooks()

        def keep(x: Tensor) -> tuple[int, Any]:
            self._first.append(SavedVersion(x))
            return len(self._first) - 1, pack(x)

        def give(saved: tuple[int, Any]) -> Tensor:
            index, content = saved
            try:
                x: Tensor = unpack(content)  # runs the second pass
            except RuntimeError as error:
                if str(error).startswith(MODIFIED) and self._name not in str(error):
                    # Autograd's own check of the block's inputs does not name the block.
                    raise RuntimeError(f"{error} {self._name} needs it to run again.") from None
                raise
            self._second[index].check(x, f"{self._name} saves it; change a copy in the block")
            return x

        return saved_tensors_hooks(keep, give)

    def second_pass(self, inputs: Sequence[Any]) -> AbstractContextManager[Any]:
        """Enter it around the second pass on `inputs`, inside the hooks of torch's checkpoint."""
        for x, before in zip(tensors_in(inputs), self._inputs, strict=True):
            before.check(x, f"{self._name} needs it to run again; change a copy")
        pack, unpack = _enclosing_hooks()
        self._second = []

        def keep(x: Tensor) -> Any:
            # Before `pack`, which ends the pass after the last tensor that is needed.
            self._second.append(SavedVersion(x))
            remedy = f"{self._name} runs again in the backward and reads it; make it a buffer or an argument"
            self._first[len(self._second) - 1].check(x, remedy)
            return pack(x)

        return saved_tensors_hooks(keep, unpack)


def _enclosing_hooks() -> tuple[Any, Any]:
    # Autograd calls only the innermost hooks, so these have to call the hooks around them.
    hooks = innermost_saved_tensors_hooks()
    assert hooks is not None, "torch's checkpoint installs hooks"
    return hooks

"""Who reads a layer's output, and the parameters and buffers of a model, while an example runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from qat.layers.example import tensors


@dataclass
class Run:
    """One call of a layer: the layer, its output, and the modules in which operators read that."""

    layer: str
    output: Tensor
    readers: set[str] = field(default_factory=set)


class Reads(TorchDispatchMode):
    """Sees every operator, those inside of custom Functions too.

    Args:
        state: the parameters and buffers that the example runs on, by name.
        gives: whether a module is one whose output is watched.
        takes: whether a module is one whose input is.
    """

    def __init__(
        self,
        state: dict[str, Tensor],
        gives: Callable[[nn.Module], bool],
        takes: Callable[[nn.Module], bool],
    ) -> None:
        super().__init__()
        self.gives, self.takes = gives, takes
        self.places = {name: place_of(x) for name, x in state.items()}
        self.state_readers: dict[int, set[str]] = {place: set() for place in self.places.values()}
        self.path: list[str] = []
        self.runs: dict[int, Run] = {}  # by the output's id; the run keeps it alive, so the id stays its own
        self.inputs: dict[str, list[Run | None]] = {}  # what each module that takes read, call after call

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for x in tensors((args, kwargs)):
            self.note(x, self.path[-1] if self.path else "")
        return func(*args, **(kwargs or {}))

    def note(self, x: Tensor, reader: str) -> None:
        """Somebody reads a tensor."""
        if id(x) in self.runs:
            self.runs[id(x)].readers.add(reader)
        if place_of(x) in self.state_readers:
            self.state_readers[place_of(x)].add(reader)

    def others(self, name: str) -> str:
        """Who, beside the module itself, reads its parameters and buffers."""
        own = [place for key, place in self.places.items() if key.rpartition(".")[0] == name]
        return listed(set[str]().union(*(self.state_readers[place] for place in own)) - {name})

    def enter(self, name: str, module: nn.Module, inputs: list[Any]) -> None:
        if self.takes(module):
            self.inputs.setdefault(name, []).append(self.runs.get(id(inputs[0])))

    def leave(self, name: str, module: nn.Module, inputs: list[Any], output: Any) -> Any:
        if self.gives(module):
            self.runs[id(output)] = Run(name, output)


def place_of(x: Tensor) -> int:
    """Where a tensor's memory begins: a detached alias begins there, too."""
    return x.data_ptr() if x.layout == torch.strided else id(x)


def listed(readers: set[str]) -> str:
    return ", ".join(sorted(reader or "the model itself" for reader in readers))

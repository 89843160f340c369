"""Record which modules read the outputs of layers, the parameters and the buffers, while an example runs."""

import gc
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from qat.torch_private import StorageWeakRef, TorchDispatchMode, tensors_in

# The layers that fold -> the number of dimensions that their output must have: without a batch, or where a
# linear layer runs over a sequence, the channels lie on another axis than BatchNorm's.
FOLDABLE: dict[type[nn.Module], int] = {
    **{nn.Linear: 2, nn.Conv1d: 3, nn.Conv2d: 4, nn.Conv3d: 5},
    **{nn.ConvTranspose1d: 3, nn.ConvTranspose2d: 4, nn.ConvTranspose3d: 5},
}
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
CALLER = "the model's caller"
KEEPER = "an attribute or object that keeps it"


@dataclass
class LayerCall:
    """One call of a layer, and the modules whose operators read its output."""

    layer: str
    dims: int  # of the output
    storage: StorageWeakRef  # of the output
    consumers: set[str] = field(default_factory=set)


class ConsumerRecorder(TorchDispatchMode):
    """Sees each operator that reads `state`, the parameters and buffers by name, or the output of a layer.

    It also sees the operators inside of custom autograd Functions. It keeps no output alive itself. If the
    memory of an output still exists after the forward, an attribute, a hook or an object that the model
    returned keeps it, and may read it later.
    """

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        self.path: list[str] = []
        self.calls: list[LayerCall] = []  # of foldable layers, in order
        # BatchNorm name -> for each of its calls, the layer call whose output it read, or None.
        self.norm_inputs: dict[str, list[LayerCall | None]] = {}
        self._addresses = {name: address_of(x) for name, x in state.items()}
        self._state_consumers: dict[int, set[str]] = {place: set() for place in self._addresses.values()}
        # By storage, so that an alias which no operator made (`y.data`) counts as the output itself. While a
        # weak reference exists, no other storage gets the same address.
        self._by_storage: dict[StorageWeakRef, LayerCall] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._record((args, kwargs), self.path[-1] if self.path else "")
        return func(*args, **(kwargs or {}))

    def enter(self, name: str, module: nn.Module, inputs: list[Any]) -> None:
        if isinstance(module, BATCH_NORMS):
            self.norm_inputs.setdefault(name, []).append(self._find(inputs[0]))

    def leave(self, name: str, module: nn.Module, inputs: list[Any], output: Any) -> None:
        if type(module) in FOLDABLE and "forward" not in vars(module):
            storage = StorageWeakRef(output.untyped_storage())
            self.calls.append(LayerCall(name, output.dim(), storage))
            self._by_storage[storage] = self.calls[-1]

    def finish(self, output: Any) -> None:
        """Record who reads, or may read, a layer's output after the forward; `output` is the model's."""
        self._record(output, CALLER)
        kept = [call for call in self.calls if CALLER not in call.consumers and not call.storage.expired()]
        if kept:
            gc.collect()  # a reference cycle that nothing else refers to keeps nothing for a reader
        for call in kept:
            if not call.storage.expired():
                call.consumers.add(KEEPER)

    def state_consumers(self, name: str) -> str:
        """Names of those that read the parameters and buffers of a module, the module itself left out."""
        own = [place for key, place in self._addresses.items() if key.rpartition(".")[0] == name]
        return listed(set[str]().union(*(self._state_consumers[place] for place in own)) - {name})

    def _record(self, tree: Any, consumer: str) -> None:
        for x in tensors_in(tree):
            if call := self._find(x):
                call.consumers.add(consumer)
            if address_of(x) in self._state_consumers:
                self._state_consumers[address_of(x)].add(consumer)

    def _find(self, x: Tensor) -> LayerCall | None:
        try:
            return self._by_storage.get(StorageWeakRef(x.untyped_storage()))
        except RuntimeError:  # a sparse tensor, or one inside torch.vmap
            return None


def address_of(x: Tensor) -> int:
    """Where the tensor's memory begins; the same for a detached alias."""
    return x.data_ptr() if x.layout == torch.strided else id(x)


def listed(names: set[str]) -> str:
    """The names of modules as text, in order."""
    return ", ".join(sorted(name or "the model itself" for name in names))

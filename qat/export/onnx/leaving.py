"""Which layers leave the graph: a tensor that becomes numbers is a constant to an exporter."""

from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode

from qat.layers.example import run_example
from qat.module_state import copy_buffers

LEAVES = {"numpy": "Tensor.numpy", "__array__": "NumPy", "tolist": "Tensor.tolist"}


class _Leaving(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.path: list[str] = []
        self.found: list[tuple[str, str]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in LEAVES:
            self.found.append((self.path[-1] if self.path else "", LEAVES[name]))
        return func(*args, **(kwargs or {}))

    def enter(self, name: str, module: nn.Module, inputs: list[Any]) -> None:
        pass

    def leave(self, name: str, module: nn.Module, inputs: list[Any], output: Any) -> Any:
        return None


def refuse_leaving(model: nn.Module, args: tuple[Any, ...]) -> None:
    """Run the model once and refuse it where its forward takes a tensor to NumPy or to Python's numbers.

    Raises:
        ValueError: it does; the message names the module and the way out.
    """
    watch = _Leaving()
    run_example(model, args, copy_buffers(model), False, watch)
    for name, way in watch.found:
        kind = type(model.get_submodule(name)).__name__
        raise ValueError(
            f"{name or 'the model itself'} ({kind}) leaves the graph through {way}: what it computes there "
            "would become a constant in the file; write it with torch's functions"
        )

"""Modules that convert tensors to NumPy or Python numbers, which an exporter takes for constants."""

from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode

from qat.layers.example import run_example
from qat.module_state import copy_buffers

CONVERSIONS = {"numpy": "Tensor.numpy", "__array__": "NumPy", "tolist": "Tensor.tolist"}


class _Watch(TorchFunctionMode):
    """Notes each conversion and the module that makes it; the `Listener` of `run_example`."""

    def __init__(self) -> None:
        super().__init__()
        self.path: list[str] = []
        self.found: list[tuple[str, str]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in CONVERSIONS:
            self.found.append((self.path[-1] if self.path else "", CONVERSIONS[name]))
        return func(*args, **(kwargs or {}))

    def enter(self, name: str, module: nn.Module, inputs: list[Any]) -> None:
        pass

    def leave(self, name: str, module: nn.Module, inputs: list[Any], output: Any) -> Any:
        return None


def refuse_graph_breaks(model: nn.Module, args: tuple[Any, ...]) -> None:
    """Run the model once, and refuse it if its forward converts a tensor to NumPy or to Python numbers."""
    watch = _Watch()
    run_example(model, args, copy_buffers(model), False, watch)
    for name, conversion in watch.found:
        kind = type(model.get_submodule(name)).__name__
        raise ValueError(
            f"{name or 'the model itself'} ({kind}) leaves the graph through {conversion}: what it computes "
            "there would become a constant in the file; write it with torch's functions"
        )

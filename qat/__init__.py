"""Quantization-aware training of small CNNs: gradients chosen by name, bits by YAML, memory by the bit."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qat.layers import Quantization, quantize
    from qat.losses import HuberLoss, huber_loss
    from qat.memory import Checkpointed, checkpoint_blocks, packed_activations, saved_bytes

__version__ = version("qat")
__all__ = [
    "Checkpointed",
    "HuberLoss",
    "Quantization",
    "checkpoint_blocks",
    "huber_loss",
    "packed_activations",
    "quantize",
    "saved_bytes",
]
_ROOMS = {
    "layers": ("Quantization", "quantize"),
    "losses": ("HuberLoss", "huber_loss"),
    "memory": ("Checkpointed", "checkpoint_blocks", "packed_activations", "saved_bytes"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line must set up threads before torch loads."""
    for room, names in _ROOMS.items():
        if name in names:
            return getattr(import_module(f"qat.{room}"), name)
    raise AttributeError(f"module 'qat' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

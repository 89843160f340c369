"""Spend less activation memory, and measure it."""

from qat.memory.by_name import checkpoint_blocks
from qat.memory.checkpoint import Checkpointed
from qat.memory.packing import packed_activations
from qat.memory.recompute import Recompute, recompute
from qat.memory.saved_bytes import SavedBytes, saved_bytes

__all__ = [
    "Checkpointed",
    "Recompute",
    "SavedBytes",
    "checkpoint_blocks",
    "packed_activations",
    "recompute",
    "saved_bytes",
]

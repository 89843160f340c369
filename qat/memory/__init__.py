"""Spend less activation memory, and measure it."""

from qat.memory.checkpoint import Checkpointed, checkpoint_blocks
from qat.memory.recompute import Recompute, recompute
from qat.memory.saved_bytes import SavedBytes, saved_bytes

__all__ = ["Checkpointed", "Recompute", "SavedBytes", "checkpoint_blocks", "recompute", "saved_bytes"]

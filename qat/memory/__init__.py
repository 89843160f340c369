"""Spend less activation memory, and measure it."""

from qat.memory.checkpoint import Checkpointed, checkpoint_blocks
from qat.memory.saved_bytes import SavedBytes, saved_bytes

__all__ = ["Checkpointed", "SavedBytes", "checkpoint_blocks", "saved_bytes"]

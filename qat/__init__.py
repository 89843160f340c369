"""Quantization-aware training of small CNNs: gradients chosen by name, bits by YAML, blocks checkpointed."""

from importlib.metadata import version

from qat.layers import Quantization, quantize
from qat.losses import HuberLoss, huber_loss
from qat.memory import Checkpointed, checkpoint_blocks, saved_bytes

__version__ = version("qat")
__all__ = [
    "Checkpointed",
    "HuberLoss",
    "Quantization",
    "checkpoint_blocks",
    "huber_loss",
    "quantize",
    "saved_bytes",
]

"""Quantization-aware training of small CNNs: gradients chosen by name, bits by YAML, memory by the bit."""

from importlib.metadata import version

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

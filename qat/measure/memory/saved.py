"""What autograd saves in a mode."""

from contextlib import nullcontext

from torch import Tensor, nn

from qat.memory import packed_activations, saved_bytes


def saved(model: nn.Module, images: Tensor, packed: bool) -> int:
    """Bytes that the network keeps between forward and backward. Shape of images: `(N, C, H, W)`."""
    with packed_activations() if packed else nullcontext():
        return saved_bytes(model, images).total

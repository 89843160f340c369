"""What the study measures: one network, its bits and the size of its batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from qat.layers import Quantization, quantize
from qat.measure.memory.modes import Mode
from qat.memory import checkpoint_blocks
from qat.quantizers.grid import check_bits
from qat.training.network import build_network

CLASSES = 10
USUAL = ("stem", "blocks.*")  # how the package's own models name what can be checkpointed


@dataclass(frozen=True)
class Case:
    """One network under one quantization.

    Args:
        model: name of `qat.models`, or the import path of a class or function.
        image: `(C, H, W)` of one image.
        batch: images a step, at least 2 (BatchNorm needs two).
        bits: of weights and activations, 1 to 8 or 16.
        scale: where the scales of both come from.
        checkpoint: globs over the names of the blocks that checkpointed modes recompute; none: `stem` and
            `blocks.*`, as far as the model has them.
        device: `cpu` or `cuda`.

    Raises:
        ValueError: an argument is out of its range, or there is no such device here.
    """

    model: str = "resnet20"
    image: Sequence[int] = (3, 32, 32)
    batch: int = 128
    bits: int = 4
    scale: Literal["observed", "learned"] = "observed"
    checkpoint: Sequence[str] = ()
    device: Literal["cpu", "cuda"] = "cpu"

    def __post_init__(self) -> None:
        check_bits("bits", self.bits)
        if self.batch < 2:
            raise ValueError(f"batch must be at least 2, which BatchNorm needs; got {self.batch}")
        if len(self.image) != 3 or min(self.image) < 1:
            given = " ".join(map(str, self.image))
            raise ValueError(f"image must be channels, height and width, as in 3 32 32; got {given}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device must be cpu where torch finds no CUDA, got cuda")

    @property
    def quantization(self) -> Quantization:
        """`bits` and `scale` for weights and activations, 8 bits at both ends."""
        return Quantization(
            weight_bits=self.bits,
            activation_bits=self.bits,
            weight_scale=self.scale,
            activation_scale=self.scale,
        )

    def build(self, mode: Mode) -> nn.Module:
        """The network of a mode, the same weights each time, ready to train on the device.

        Raises:
            ValueError: the model cannot be built so, or a pattern matches no block of it.
        """
        torch.manual_seed(0)
        model = build_network(self.model, tuple(self.image), CLASSES, {})
        return self.prepare(model, mode)

    def prepare(self, model: nn.Module, mode: Mode) -> nn.Module:
        """The same for a network that is built already."""
        if mode.quantized:
            quantize(model, self.quantization, torch.rand(2, *self.image))
        if mode.checkpointed:
            checkpoint_blocks(model, self.checkpoint or self._usual_blocks(model))
        return model.to(self.device).train()

    def _usual_blocks(self, model: nn.Module) -> list[str]:
        tops = [pattern for pattern in USUAL if hasattr(model, pattern.partition(".")[0])]
        if not tops:
            raise ValueError(
                f"checkpoint must name the blocks of {self.model}, which has neither stem nor blocks; "
                "as in --checkpoint 'layers.*'"
            )
        return tops

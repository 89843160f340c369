"""What is trained: one network, its quantization, and its batches."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from qat.layers import Quantization, quantize
from qat.measure.modes import MODES, Mode
from qat.measure.rounds import TimedCall
from qat.measure.step import TrainStep
from qat.memory import checkpoint_blocks
from qat.quantizers import compile_kernels
from qat.quantizers.grid import check_bits
from qat.training.network import build_network

CLASSES = 10
BLOCKS = ("stem", "blocks.*")  # the names that the models of the package give to their blocks


@dataclass(frozen=True)
class Workload:
    """One network that trains on random images, with 8 bits at its input and in its first and last layer.

    Args:
        model: lenet, small_cnn, resnet8, resnet20, resnet56, or the import path of a user-defined network,
            such as my_module.MyNet.
        image: Channels, height and width of an image.
        batch: Images in a step, at least 2.
        bits: Bit-width of weights and activations: 1 to 8, or 16.
        scale: How the scales of weights and activations are found: observed, or learned by gradient descent.
        checkpoint: Glob patterns of the names of the blocks to recompute; by default stem and blocks.*.
        device: Device on which the network is trained.

    Raises:
        ValueError: an argument is out of its range, or the device does not exist.
    """

    model: str = "resnet20"
    image: tuple[int, ...] = (3, 32, 32)
    batch: int = 128
    bits: int = 4
    scale: Literal["observed", "learned"] = "observed"
    checkpoint: tuple[str, ...] = ()
    device: Literal["cpu", "cuda"] = "cpu"

    def __post_init__(self) -> None:
        check_bits("bits", self.bits)
        if self.batch < 2:
            raise ValueError(
                f"batch must be at least 2, because BatchNorm needs two images; got {self.batch}"
            )
        if len(self.image) != 3 or min(self.image) < 1:
            given = " ".join(map(str, self.image))
            raise ValueError(f"image must be channels, height and width, as in 3 32 32; got {given}")
        check_device(self.device)

    def build(self, mode: Mode) -> nn.Module:
        """The network of a mode, in training mode on the device; its initial weights are the same each time.

        Raises:
            ValueError: the model cannot be built, or a pattern in `checkpoint` matches no block.
        """
        torch.manual_seed(0)
        return self.prepare(build_network(self.model, tuple(self.image), CLASSES, {}), mode)

    def prepare(self, network: nn.Module, mode: Mode) -> nn.Module:
        """Convert a float network to a mode in place, and return it."""
        if mode.quantized:
            scale: Literal["observed", "learned"] = "learned" if mode.learned else self.scale
            config = Quantization(self.bits, self.bits, weight_scale=scale, activation_scale=scale)
            quantize(network, config, torch.rand(2, *self.image))
        if mode.checkpointed:
            blocks = self.checkpoint or [b for b in BLOCKS if hasattr(network, b.partition(".")[0])]
            if not blocks:
                raise ValueError(
                    f"checkpoint must name the blocks of {self.model}, which has neither stem nor blocks; "
                    "as in --checkpoint 'layers.*'"
                )
            checkpoint_blocks(network, blocks)
        network.to(self.device).train()
        if mode.channels_last:
            network.to(memory_format=torch.channels_last)
        if mode.compiled:
            network.compile(fullgraph=True)
        elif mode.quantized and not mode.eager_kernels:
            compile_kernels(network, self.device)
        return network

    def train_step(self, name: str) -> TrainStep:
        """The training step in a mode, given by its name."""
        return TrainStep(self.build(MODES[name]), MODES[name])

    def timed_step(self, name: str) -> TimedCall:
        """The same on the first random batch, as a call to be timed."""
        return self.train_step(name).on(*self.random_batch())

    def random_batch(self, number: int = 0, size: int | None = None) -> tuple[Tensor, Tensor]:
        """Random images in [0, 1], `(size, *image)`, and labels, int64 `(size,)`; `number` seeds them.

        The brightness changes from batch to batch, because with equal batches an observer that moves twice
        would not be noticed. `size` is by default that of a batch.
        """
        generator, size = torch.Generator().manual_seed(number), size or self.batch
        images = torch.rand(size, *self.image, generator=generator).mul_((3 - number % 3) / 3)
        labels = torch.randint(CLASSES, (size,), generator=generator)
        return images.to(self.device), labels.to(self.device)


def check_device(device: str) -> None:
    """Raise ValueError if the device is CUDA and torch finds none."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device must be cpu, because torch finds no CUDA device; got cuda")

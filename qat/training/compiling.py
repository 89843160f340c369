"""What of a run is compiled: the quantizers' kernels in long runs, and on demand the network."""

import logging
import os

import torch
from lightning import Trainer
from torch import Tensor, nn

from qat.progress import tracked
from qat.quantizers import Quantizer, compile_kernels, use_eager_kernels

log = logging.getLogger(__name__)

LONG = 5e8  # numbers that go into the network over a run; below, compiling takes longer than it saves


class Graph:
    """The network, compiled for the training batches of the usual size.

    Short last batches, evaluation and batches at which hooks look run eagerly: each would be compiled anew.

    Args:
        network: any module; graph breaks are errors.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.size: int | None = None  # of the first training batch
        self._compiled = torch.compile(network, fullgraph=True)

    def __call__(self, images: Tensor) -> Tensor:
        """Shape: `(N, C, H, W)` -> that of the network's output."""
        watched = any(part._forward_hooks for part in self.network.modules())
        if watched or not self.network.training:
            return self.network(images)
        self.size = self.size or len(images)
        return self._compiled(images) if len(images) == self.size else self.network(images)


def prepare_kernels(network: nn.Module, trainer: Trainer, device: torch.device, elements: int) -> None:
    """Compile the quantizers' kernels if this run is long enough for that, or QAT_COMPILE=1 asks for it.

    Otherwise they run eagerly, whatever ran before in this process: a run's bits are its own.

    Args:
        network: whose quantizers they are.
        trainer: knows how many steps there will be, and of how many images.
        device: of the network.
        elements: of one image.
    """
    use_eager_kernels(network)
    if not any(isinstance(part, Quantizer) for part in network.modules()):
        return
    # Before the loaders are asked for: the trainer sets them up where it is asked for its steps.
    steps = trainer.estimated_stepping_batches * trainer.accumulate_grad_batches
    loader = trainer.train_dataloader
    batch = getattr(loader, "batch_size", None) or 1
    if steps * batch * elements >= LONG or os.environ.get("QAT_COMPILE") == "1":
        compile_kernels(network, device, lambda kernels: tracked(kernels, "compiling quantizers"))
    else:
        log.info("quantizers run eagerly: a short run (QAT_COMPILE=1 compiles all the same)")

"""What a run compiles: the quantizers' kernels in long runs, and the network on request."""

import logging
import os

import torch
from lightning import Trainer
from torch import Tensor, nn

from qat.progress import tracked
from qat.quantizers import Quantizer, compile_kernels, use_eager_kernels
from qat.torch_private import has_forward_hooks

log = logging.getLogger(__name__)

# Input values of the network over a whole run; in a shorter run, compiling costs more than it saves.
LONG = 5e8


class CompiledNetwork:
    """A network whose full training batches run through `torch.compile`.

    The network runs eagerly for a short last batch, in evaluation, and while it has forward hooks: torch
    would compile it again for each of these.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.size: int | None = None  # of the first training batch
        self._compiled = torch.compile(network, fullgraph=True)  # a graph break is an error

    def __call__(self, images: Tensor) -> Tensor:
        """Shape: `(N, C, H, W)` -> that of the network's output."""
        if not self.network.training or any(map(has_forward_hooks, self.network.modules())):
            return self.network(images)
        self.size = self.size or len(images)
        return self._compiled(images) if len(images) == self.size else self.network(images)


def prepare_kernels(network: nn.Module, trainer: Trainer, device: torch.device, elements: int) -> None:
    """Compile the quantizers' kernels if the run is long enough, or if QAT_COMPILE=1 asks for it.

    `elements` is the number of values in one image.
    """
    use_eager_kernels(network)  # also after a run that compiled them: no run depends on an earlier one
    if not any(isinstance(module, Quantizer) for module in network.modules()):
        return
    # First the steps, then the loader: the trainer sets up its loaders when it is asked for the steps.
    steps = trainer.estimated_stepping_batches * trainer.accumulate_grad_batches
    batch = getattr(trainer.train_dataloader, "batch_size", None) or 1
    if steps * batch * elements >= LONG or os.environ.get("QAT_COMPILE") == "1":
        compile_kernels(network, device, lambda kernels: tracked(kernels, "compiling quantizers"))
    else:
        log.debug("quantizers run eagerly, because the run is short (QAT_COMPILE=1 compiles them)")

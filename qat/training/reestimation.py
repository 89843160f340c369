"""BatchNorm statistics that are measured anew before each validation."""

from collections.abc import Iterator
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import DataLoader, Subset

from qat.layers import remeasure
from qat.layers.consumers import BATCH_NORMS
from qat.training.network import network_of


class Reestimation(Callback):
    """Measures BatchNorm's running statistics anew before each validation, with the weights as they are then.

    They become the mean over `batches` training batches. In training they are a moving average over the last
    batches, whose weights were others; with few bits a small step of a weight moves the statistics by much.
    The .ckpt files that are written at a validation, and runs that go on, hold the new statistics. Scales,
    weights and random generators stay as they are. The sanity check before the training measures nothing.

    The batches are evenly spaced images of the training set, in the augmentation of the epoch, the same on
    all ranks; they do not depend on the order of the training.

    Args:
        batches: their number, >= 1; each has the size of a training batch.

    Raises:
        ValueError: `batches` is no int >= 1; at the first validation, the training set has fewer, or the
            module has no BatchNorm.

    Source: Nagel et al. 2022, "Overcoming oscillations in quantization-aware training", section 3.1.
    """

    def __init__(self, batches: int) -> None:
        if type(batches) is not int or batches < 1:
            raise ValueError(f"batchnorm_batches must be an int >= 1, or 0 to leave it out, got {batches!r}")
        self.batches = batches

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not any(isinstance(module, BATCH_NORMS) for module in pl_module.modules()):
            raise ValueError("batchnorm_batches needs a network with BatchNorm; leave it out")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loader: Any = trainer.train_dataloader
        if len(loader) < self.batches:
            rule = f"batchnorm_batches must be at most {len(loader)}, the batches of an epoch"
            raise ValueError(f"{rule}; got {self.batches}")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                remeasure(network_of(pl_module), self._batches(trainer.train_dataloader), scales=False)

    def _batches(self, loader: Any) -> Iterator[Any]:
        """Batches of evenly spaced samples, each over the whole training set."""
        size = loader.batch_size
        count = min(len(loader.dataset), size * self.batches)
        step = len(loader.dataset) / count
        chosen = [int(step * n) for n in range(count)]
        order = [chosen[n] for first in range(self.batches) for n in range(first, count, self.batches)]
        return iter(
            DataLoader(
                Subset(loader.dataset, order),
                batch_size=size,
                collate_fn=loader.collate_fn,
                generator=torch.Generator(),
            )
        )

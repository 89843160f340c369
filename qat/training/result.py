"""The numbers of one run for its `result.json`."""

import hashlib
import platform
import time
from importlib.metadata import version
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn

from qat.training.network import network_of

SCHEMA = 2


class Recorder(Callback):
    """Records the losses, gradients and weights of one run."""

    def __init__(self) -> None:
        # Of each epoch: its number, mean losses, the accuracy in 0..1 and the seconds of training.
        self.epochs: list[dict[str, float]] = []
        # Of each parameter: the L2 norm of its gradient, as the mean over the steps of the first epoch and of
        # the last one (a missing gradient counts as 0), and the L2 norm of (end - start).
        self.gradient_norm: dict[str, list[float]] = {}
        self.displacement: dict[str, float] = {}
        self._losses: list[Tensor] = []
        self._start: dict[str, Tensor] = {}
        self._norms: list[Tensor] = []
        self._began = self._seconds = 0.0

    @property
    def step_losses(self) -> list[float]:
        """The training loss of each step."""
        return torch.stack(self._losses).tolist() if self._losses else []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start = {name: p.detach().clone() for name, p in network_of(pl_module).named_parameters()}

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._norms = []
        self._began = time.perf_counter()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        # One tensor a step, on the model's device: nothing waits for its value before the epoch ends.
        parameters = list(network_of(pl_module).parameters())
        zero = torch.zeros((), device=pl_module.device)
        self._norms.append(torch.stack([zero if p.grad is None else p.grad.norm() for p in parameters]))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._losses.append(outputs["loss"].detach())
        if trainer.is_last_batch:
            self._seconds = time.perf_counter() - self._began

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        names = ("train_loss", "val_loss", "val_accuracy")
        metrics = {name: float(trainer.callback_metrics[name]) for name in names}
        seconds = round(self._seconds, 3)
        self.epochs.append({"epoch": trainer.current_epoch, **metrics, "seconds": seconds})
        means = torch.stack(self._norms).mean(0).tolist()
        for (name, _), mean in zip(network_of(pl_module).named_parameters(), means, strict=True):
            first = self.gradient_norm.setdefault(name, [mean, mean])[0]
            self.gradient_norm[name] = [first, mean]

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for name, p in network_of(pl_module).named_parameters():
            self.displacement[name] = (p.detach() - self._start[name]).norm().item()

    def result(self) -> dict[str, Any]:
        """The part of a `result.json` that training determines."""
        return {name: getattr(self, name) for name in ("epochs", "gradient_norm", "displacement")}


def digests(model: nn.Module) -> dict[str, str]:
    """SHA-256 of each entry of the `state_dict`, over its bytes."""
    return {
        key: hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
        for key, value in model.state_dict().items()
    }


def versions() -> dict[str, str]:
    """What a result depends on besides settings and seed: packages, Python, machine, number of threads."""
    machine = f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        machine += f", {torch.cuda.get_device_name()}"
    packages = {package: version(package) for package in ("qat", "torch", "lightning")}
    return {**packages, "python": platform.python_version(), "machine": machine}

"""What one run leaves behind: the numbers of a `result.json`."""

import hashlib
import json
import math
import platform
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn

SCHEMA = 2


@dataclass(frozen=True)
class Epoch:
    """One epoch: losses are means over the images, accuracy is in 0..1, seconds are those of training."""

    epoch: int
    train_loss: float
    val_loss: float
    val_accuracy: float
    seconds: float


class Recorder(Callback):
    """Watches one run.

    Attributes:
        epochs: one `Epoch` for each.
        step_losses: the training loss of each step.
        gradient_norm: by parameter, the L2 norm of its gradient, mean over the steps of the first and of
            the last epoch. 0 where no gradient came.
        displacement: by parameter, the L2 norm of (now - at the start).
    """

    def __init__(self) -> None:
        self.epochs: list[Epoch] = []
        self.gradient_norm: dict[str, list[float]] = {}
        self.displacement: dict[str, float] = {}
        self._losses: list[Tensor] = []
        self._start: dict[str, Tensor] = {}
        self._norms: list[Tensor] = []
        self._began = self._seconds = 0.0

    @property
    def step_losses(self) -> list[float]:
        return torch.stack(self._losses).tolist() if self._losses else []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start = {name: p.detach().clone() for name, p in _network(pl_module).named_parameters()}

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._norms = []
        self._began = time.perf_counter()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        # One tensor a step, on the model's device: nothing waits for its value before the epoch is over.
        parameters = list(_network(pl_module).parameters())
        zero = torch.zeros((), device=pl_module.device)
        self._norms.append(torch.stack([zero if p.grad is None else p.grad.norm() for p in parameters]))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._losses.append(outputs["loss"].detach())
        if trainer.is_last_batch:
            self._seconds = time.perf_counter() - self._began

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        metrics = {key: float(value) for key, value in trainer.callback_metrics.items()}
        known = (metrics["train_loss"], metrics["val_loss"], metrics["val_accuracy"])
        self.epochs.append(Epoch(trainer.current_epoch, *known, round(self._seconds, 3)))
        means = torch.stack(self._norms).mean(0).tolist()
        for (name, _), mean in zip(_network(pl_module).named_parameters(), means, strict=True):
            first = self.gradient_norm.setdefault(name, [mean, mean])[0]
            self.gradient_norm[name] = [first, mean]

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for name, p in _network(pl_module).named_parameters():
            self.displacement[name] = (p.detach() - self._start[name]).norm().item()

    def result(self) -> dict[str, Any]:
        """The part of a `result.json` that was seen in training."""
        return {
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "gradient_norm": self.gradient_norm,
            "displacement": self.displacement,
        }


def _network(pl_module: LightningModule) -> nn.Module:
    network = pl_module.model
    assert isinstance(network, nn.Module)
    return network


def digests(model: nn.Module) -> dict[str, str]:
    """SHA-256 of each entry of the `state_dict`, over its bytes."""
    return {
        key: hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
        for key, value in model.state_dict().items()
    }


def versions() -> dict[str, str]:
    """What a number depends on beside settings and seed: packages, Python, machine, threads."""
    packages = ("qat", "torch", "lightning")
    machine = f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        machine += f", {torch.cuda.get_device_name()}"
    return {
        **{package: version(package) for package in packages},
        "python": platform.python_version(),
        "machine": machine,
    }


def write_json(path: Path, content: Any) -> None:
    """Write a file whole or not at all, in strict JSON: a number that is not finite becomes null."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(_finite(content), indent=1, allow_nan=False), encoding="utf-8")
    part.replace(path)


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content

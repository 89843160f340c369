"""Folders that a verb writes to, and what it writes for a run and prints of it."""

import os
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from qat.layers import summary
from qat.training.network import network_of
from qat.whole_file import write_whole


def check_writable(argument: str, folder: str | Path) -> None:
    """Raise ValueError, which names the option `argument`, unless a folder can be made and written to."""
    if not str(folder):
        raise ValueError(f"{argument} must name a folder, got nothing; give one such as runs/mine")
    existing = Path(folder).absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "is not writable" if existing.is_dir() else "is a file, not a folder"
        raise ValueError(
            f"{argument} must be a writable folder, got {folder}: {existing} {why}; "
            "choose another, such as runs/mine"
        )


def new_loggers(root: str | Path) -> list[Logger]:
    """metrics.csv and TensorBoard's events in one folder: the next version of `root`."""
    csv = CSVLogger(root, name="")
    return [csv, TensorBoardLogger(root, name="", version=csv.version, default_hp_metric=False)]


class SaveConfig(SaveConfigCallback):
    """Saves the parsed configuration as config.yaml, or as config_1.yaml beside an earlier one."""

    def __init__(self, parser: Any, config: Any, **options: Any) -> None:
        super().__init__(parser, config, save_to_log_dir=False, **options)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._folder = Path(trainer.log_dir or ".")  # here, because all processes must ask for it
        super().setup(trainer, pl_module, stage)

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write the file, whole; only the first process is asked to."""
        path, count = self._folder / self.config_filename, 0
        while path.exists():
            count += 1
            path = path.with_name(f"config_{count}.yaml")
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, self.parser.dump(self.config, skip_none=False))


class ShowSummary(Callback):
    """Prints the bits and the cost of each layer before a run starts."""

    @rank_zero_only
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        network = network_of(pl_module)
        like = next(network.parameters())  # `precision` decides its type
        image = torch.zeros(1, *pl_module.hparams["input_shape"], device=like.device, dtype=like.dtype)
        print(summary(network, image))

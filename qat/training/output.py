"""Where a run writes: `<default_root_dir>/version_<n>/`, a new folder for each run."""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from qat.layers import summary


def check_writable(argument: str, root: str | Path) -> None:
    """Ask whether a folder can be made and written to, without making it.

    Raises:
        ValueError: a part of the path is a file, or may not be written to.
    """
    if not str(root):
        raise ValueError(f"{argument} must name a folder, got nothing; runs/mine, say")
    existing = Path(root).absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "is not writable" if existing.is_dir() else "is a file, not a folder"
        raise ValueError(
            f"{argument} must be a folder one can write to, got {root}: {existing} {why}; "
            "choose another, such as runs/mine"
        )


def new_loggers(root: str | Path) -> list[Logger]:
    """metrics.csv and TensorBoard's events in one folder: the next version of `root`."""
    csv = CSVLogger(root, name="")
    return [csv, TensorBoardLogger(root, name="", version=csv.version, default_hp_metric=False)]


class Best(ModelCheckpoint):
    """best.ckpt: the epoch of the highest val_accuracy, over the epochs before a resume too."""

    def __init__(self) -> None:
        super().__init__(
            filename="best",
            monitor="val_accuracy",
            mode="max",
            save_on_train_epoch_end=True,
            enable_version_counter=False,
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # Lightning forgets the best score where the folder changes, and ours is a new one for each run.
        earlier = Path(state_dict["best_model_path"])
        if self.dirpath is not None and state_dict["dirpath"] != self.dirpath and earlier.is_file():
            copy = Path(self.dirpath) / "best.ckpt"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(earlier, copy)
            paths = {"best_model_path": str(copy), "kth_best_model_path": str(copy), "dirpath": self.dirpath}
            best = {"best_k_models": {str(copy): state_dict["best_model_score"]}}
            state_dict = state_dict | paths | best
        super().load_state_dict(state_dict)


class Last(ModelCheckpoint):
    """last.ckpt: the epoch that ended last, whether it was better or not (`save_last=True` skips some)."""

    def __init__(self) -> None:
        super().__init__(filename="last", save_on_train_epoch_end=True, enable_version_counter=False)


class SaveConfig(SaveConfigCallback):
    """Saves the parsed configuration as config.yaml, or beside an earlier one as config_1.yaml."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        folder, count = Path(trainer.log_dir or "."), 0
        while not self.already_saved and (folder / self.config_filename).exists():
            count += 1
            self.config_filename = f"config_{count}.yaml"
        super().setup(trainer, pl_module, stage)


class ShowSummary(Callback):
    """Prints what each layer computes in, and costs, before a run starts."""

    @rank_zero_only
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        network = pl_module.model
        assert isinstance(network, nn.Module)
        shape = pl_module.hparams["input_shape"]
        print(summary(network, torch.zeros(1, *shape, device=pl_module.device)))

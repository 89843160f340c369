"""What the command line writes for a run, `<default_root_dir>/version_<n>/`, and prints of it."""

from pathlib import Path

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from qat.layers import summary
from qat.training.network import network_of


def new_loggers(root: str | Path) -> list[Logger]:
    """metrics.csv and TensorBoard's events in one folder: the next version of `root`."""
    csv = CSVLogger(root, name="")
    return [csv, TensorBoardLogger(root, name="", version=csv.version, default_hp_metric=False)]


class SaveConfig(SaveConfigCallback):
    """Saves the parsed configuration as config.yaml, or as config_1.yaml beside an earlier one."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        folder, count = Path(trainer.log_dir or "."), 0
        while not self.already_saved and (folder / self.config_filename).exists():
            count += 1
            self.config_filename = f"config_{count}.yaml"
        super().setup(trainer, pl_module, stage)


class ShowSummary(Callback):
    """Prints the bits and the cost of each layer before a run starts."""

    @rank_zero_only
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        image = torch.zeros(1, *pl_module.hparams["input_shape"], device=pl_module.device)
        print(summary(network_of(pl_module), image))

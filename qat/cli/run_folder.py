"""Folders that a verb writes to, and what it writes for a run and prints of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
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
    try:
        with TemporaryDirectory(dir=existing):  # permissions do not tell: /proc takes no file, even of root
            return
    except OSError:
        why = "is not writable" if existing.is_dir() else "is a file, not a folder"
        raise ValueError(
            f"{argument} must be a writable folder, got {folder}: {existing} {why}; "
            "choose another, such as runs/mine"
        ) from None


@contextmanager
def new_version(root: str | Path, claims: bool = True) -> Iterator[list[Logger]]:
    """Claim the folder of the next version in `root`, and give the loggers that write to it.

    The folder is made in one step, so that no two runs share it. A run that ends with an error before its
    first .ckpt file leaves none. The other processes of a run claim nothing (`claims` is False): the first
    one tells them the folder.
    """
    version = int(CSVLogger(root, name="").version)  # a number, as no other was given
    while claims:
        folder = Path(root) / f"version_{version}"
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError:  # another run was faster
            version += 1
    loggers = CSVLogger(root, "", version), TensorBoardLogger(root, "", version, default_hp_metric=False)
    try:
        yield list(loggers)
    except Exception:
        if claims and not any(folder.rglob("*.ckpt")):
            rmtree(folder, ignore_errors=True)
        raise


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

"""The private names of Lightning that the package uses; a new release has to be checked here first."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.utils.data import DataLoader

from qat.training.lightning_private import (
    copies_process,
    is_inside_step,
    load_loader_states,
    needs_all_gradients,
    set_logged_step,
)

CHECKED = ("2.6",)


def test_the_release_was_checked() -> None:
    release = ".".join(lightning.__version__.split(".")[:2])
    assert release in CHECKED, (
        f"lightning {release} was not checked: see whether the names in qat/training/lightning_private.py "
        "have become public, or are not needed any more; then add the release to CHECKED"
    )


class Loader(DataLoader[Any]):
    """Remembers the states that it was given."""

    def __init__(self) -> None:
        super().__init__(torch.arange(3.0).view(3, 1))  # type: ignore[arg-type]
        self.loaded: list[Any] = []

    def state_dict(self) -> dict[str, Any]:
        return {"kept": True}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loaded.append(state)


class Line(LightningModule):
    """A line whose schedule depends on the number of steps; notes where optimizer steps are unfinished."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.inside: list[bool] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss: Tensor = self.layer(batch).sum()
        self.log("loss", loss)
        return loss

    def on_train_start(self) -> None:
        load_loader_states(self.trainer)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        set_logged_step(self.trainer, 40 + batch_idx)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.inside.append(is_inside_step(self.trainer))

    def configure_optimizers(self) -> Any:
        assert self.trainer.estimated_stepping_batches
        return torch.optim.SGD(self.parameters(), 0.1)


def trainer(folder: Path, **options: Any) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return Trainer(default_root_dir=folder, **{"accelerator": "cpu", "devices": 1} | quiet | options)


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* is not empty")
def test_the_state_of_a_loader(tmp_path: Path) -> None:
    def saving(**options: Any) -> Trainer:
        saves = ModelCheckpoint(tmp_path, "saved", every_n_train_steps=1, enable_version_counter=False)
        return trainer(tmp_path, callbacks=[saves], **options)

    saving(max_steps=1).fit(Line(), Loader())
    loader = Loader()
    saving(max_epochs=1).fit(Line(), loader, ckpt_path=tmp_path / "saved.ckpt", weights_only=True)
    assert loader.loaded == [{"kept": True}]


def test_the_end_of_an_optimizer_step(tmp_path: Path) -> None:
    line = Line()
    trainer(tmp_path, max_epochs=1, accumulate_grad_batches=2, enable_checkpointing=False).fit(line, Loader())
    assert line.inside == [True, False, False]  # the last batch ends its step in any case


def test_the_logged_step(tmp_path: Path) -> None:
    logger = lightning.pytorch.loggers.CSVLogger(tmp_path, "", "")
    options = {"logger": logger, "log_every_n_steps": 1, "enable_checkpointing": False}
    trainer(tmp_path, max_epochs=1, **options).fit(Line(), Loader())
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[lines[0].split(",").index("step")] for line in lines[1:]] == ["40", "41", "42"]


@pytest.mark.parametrize(("strategy", "copies"), [("ddp_spawn", True), ("ddp", False), ("auto", False)])
def test_strategies_that_copy_the_process(strategy: str, copies: bool, tmp_path: Path) -> None:
    devices = 1 if strategy == "auto" else 2
    assert copies_process(trainer(tmp_path, strategy=strategy, devices=devices)) is copies


@pytest.mark.parametrize(
    ("strategy", "needs"),
    [
        ("ddp", True),
        ("ddp_find_unused_parameters_true", False),
        (DDPStrategy(find_unused_parameters=True), False),
        ("auto", False),
    ],
)
def test_strategies_that_need_all_gradients(strategy: Any, needs: bool, tmp_path: Path) -> None:
    assert needs_all_gradients(trainer(tmp_path, strategy=strategy)) is needs

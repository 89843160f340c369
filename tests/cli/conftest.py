"""Runs that take seconds: a narrow network, few batches, nothing on the screen."""

from collections.abc import Callable
from pathlib import Path

import pytest

from qat.cli.train import main


@pytest.fixture
def short() -> list[str]:
    """Options of a W4A4 run of three epochs, with dropout, augmentation and checkpointed blocks."""
    return [
        *("--model.options.width", "4", "--model.options.dropout", "0.3", "--model.checkpoint", "[blocks.*]"),
        *("--data.augment", "true", "--trainer.deterministic", "true", "--trainer.accelerator", "cpu"),
        *(
            "--trainer.limit_train_batches",
            "4",
            "--trainer.limit_val_batches",
            "2",
            "--trainer.max_epochs",
            "3",
        ),
        *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
    ]


@pytest.fixture
def fit(short: list[str]) -> Callable[..., None]:
    """`fit(root, *options)`: that run, written into `root`."""

    def run(root: Path, *options: str) -> None:
        main(["fit", *short, "--trainer.default_root_dir", str(root), *options])

    return run

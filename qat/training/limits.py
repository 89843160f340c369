"""Options of Lightning's trainer: other defaults, and what it would refuse late or take without a word."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from lightning import LightningDataModule, Trainer

COUNTS = ("limit_train_batches", "accumulate_grad_batches", "check_val_every_n_epoch", "max_steps")
EVALUATED = ("limit_val_batches", "limit_test_batches")  # 0 leaves validation or test out


def trainer_defaults() -> dict[str, Any]:
    """The defaults that differ from Lightning's, by dotted name."""
    # Lightning's "auto" would take Apple's GPU, which has no float64.
    accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    return {"trainer.accelerator": accelerator, "trainer.max_epochs": 5}


@contextmanager
def refusals_of_trainer(accelerator: Any) -> Iterator[None]:
    """Turn the errors of many types with which Lightning refuses its options into ValueError."""
    try:
        yield
    except Exception as error:
        hint = "" if accelerator == "cpu" else " (trainer.accelerator cpu works on any machine)"
        raise ValueError(f"trainer: {error}{hint}") from error


def check_trainer(options: Mapping[str, Any], float_epochs: int) -> None:
    """Raise ValueError for a number that leaves nothing to do.

    Args:
        options: of the trainer; those that are missing have their defaults.
        float_epochs: the epochs before the first quantized one.
    """
    epochs = options.get("max_epochs")
    if epochs is not None and epochs != -1:
        if epochs < 1:
            raise ValueError(f"trainer.max_epochs must be at least 1, or -1 for no end; got {epochs}")
        if epochs <= float_epochs:
            rule = f"model.float_epochs must be below trainer.max_epochs ({epochs}), or no epoch is quantized"
            raise ValueError(f"{rule}; got {float_epochs}")
    check_above_zero(options, COUNTS)
    precision = str(options.get("precision"))
    if precision == "16-true":
        why = "in float16 the smallest numbers of an optimizer are 0, and the first steps give NaN"
        raise ValueError(f"trainer.precision must not be 16-true: {why}; use bf16-true or 16-mixed")
    if precision in ("16", "16-mixed") and options.get("accelerator") == "cpu":
        raise ValueError(f"trainer.precision {precision} needs a GPU; use bf16-mixed on the CPU")
    clip, interval = options.get("gradient_clip_val"), options.get("val_check_interval")
    if clip is not None and not 0 <= clip < math.inf:
        raise ValueError(
            f"trainer.gradient_clip_val must be >= 0 and finite, got {clip}; leave it out for none"
        )
    if isinstance(interval, int | float) and not 0 < interval < math.inf:
        raise ValueError(f"trainer.val_check_interval must be above 0, got {interval}; 1.0 is once an epoch")


def check_above_zero(options: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise ValueError for an option of the trainer that is 0 or less, but for -1."""
    for name in names:
        value = options.get(name)
        if value is not None and value != -1 and value <= 0:
            raise ValueError(f"trainer.{name} must be above 0, got {value}; leave it out to use all")


def check_batches(trainer: Trainer, data: LightningDataModule, stage: str = "fit") -> None:
    """Raise ValueError where a share of the batches is less than one, or an interval longer than an epoch.

    `data` is set up for `stage`: fit, validate or test.
    """
    loaders = {"train": data.train_dataloader, "val": data.val_dataloader, "test": data.test_dataloader}
    used = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",)}[stage]
    for part in used:
        count, limit = len(loaders[part]()), getattr(trainer, f"limit_{part}_batches")
        number = limit if isinstance(limit, int) else int(count * limit)
        if limit and number < 1:
            name = f"trainer.{'overfit' if vars(trainer).get('overfit_batches') else f'limit_{part}'}_batches"
            raise ValueError(
                f"{name} must be at least 1 batch or {1 / count:.2g} of the {count}; got {limit}"
            )
        interval = trainer.val_check_interval
        within_epoch = isinstance(interval, int) and trainer.check_val_every_n_epoch is not None
        if part == "train" and within_epoch and interval > min(number, count):
            rule = f"trainer.val_check_interval must be at most {min(number, count)}, the batches of an epoch"
            raise ValueError(f"{rule}; got {interval}")

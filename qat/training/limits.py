"""Options of Lightning's trainer that it would refuse late, or take without a word."""

import math
from collections.abc import Mapping
from typing import Any

from lightning import LightningDataModule, Trainer

COUNTS = ("limit_train_batches", "accumulate_grad_batches", "check_val_every_n_epoch", "max_steps")
LIMITS = ("limit_train_batches", "limit_val_batches", "limit_test_batches")


def check_trainer(options: Mapping[str, Any], float_epochs: int, endless: bool = True) -> None:
    """Raise ValueError for a number that leaves nothing to do.

    Args:
        options: of the trainer; those that are missing have their defaults.
        float_epochs: the epochs before the first quantized one.
        endless: whether `max_epochs` may be -1, without end, or None, Lightning's 1000.
    """
    epochs, least = options.get("max_epochs"), 1 if endless else float_epochs + 1
    if epochs is None or epochs == -1:
        if not endless:
            raise ValueError(f"trainer.max_epochs must be a number of epochs, got {epochs}")
    elif epochs < least:
        rule = ", one more than model.float_epochs" if not endless else ", or -1 for no end"
        raise ValueError(f"trainer.max_epochs must be at least {least}{rule}; got {epochs}")
    elif epochs <= float_epochs:
        rule = f"model.float_epochs must be below trainer.max_epochs ({epochs}), or no epoch is quantized"
        raise ValueError(f"{rule}; got {float_epochs}")
    for name in COUNTS if endless else (*COUNTS, *LIMITS):
        value = options.get(name)
        if value is not None and value != -1 and value <= 0:
            raise ValueError(f"trainer.{name} must be above 0, got {value}; leave it out to use all")
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

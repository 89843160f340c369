"""The options of training: their names, their values in full, and the objects that are built from them."""

import inspect
import json
from argparse import ArgumentError
from collections.abc import Mapping
from functools import cache, reduce
from operator import getitem
from typing import Any

from jsonargparse import ArgumentParser
from lightning import Callback, Trainer

from qat.data import ImageData, data_shape
from qat.options import by_name, check_place, explain
from qat.training.classifier import Classifier
from qat.training.limits import (
    EVALUATED,
    check_above_zero,
    check_trainer,
    refusals_of_trainer,
    trainer_defaults,
)
from qat.training.named_parts import stored_option
from qat.training.saving import WholeCkpts

CLIPPING = ("gradient_clip_val", "gradient_clip_algorithm")
BATCHES = ("accumulate_grad_batches", "limit_train_batches", *EVALUATED)
# Free in a comparison.
TRAINER_OPTIONS = ("max_epochs", "accelerator", "precision", *BATCHES, *CLIPPING)
FIXED: dict[str, Any] = {"devices": 1, "deterministic": True, "num_sanity_val_steps": 0, "logger": False}
FIXED |= dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
OF_THE_RUN = {"seed", "input_shape", "classes"}  # these come from the run's seed and from its data
OF_TRAINER = inspect.signature(Trainer).parameters


@cache
def _parser() -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Classifier, "model", fail_untyped=False, skip=OF_THE_RUN)
    parser.add_class_arguments(ImageData, "data", fail_untyped=False, skip=OF_THE_RUN)
    set_here = set(OF_TRAINER).difference(TRAINER_OPTIONS)
    parser.add_class_arguments(Trainer, "trainer", fail_untyped=False, skip=set_here)
    parser.set_defaults(trainer_defaults())
    return parser


@cache
def defaults() -> dict[str, Any]:
    """The default value of each option by its dotted name, such as `model.quantization.weight_bits`."""
    return dict(_parser().get_defaults().items())


def plain_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by nested or dotted names, as checked values by dotted names: the text `1e-3` is 0.001.

    A user-defined part, also one given as a function or class, becomes its import path.

    Raises:
        ValueError: an option does not exist or is given twice, a value does not fit, or a part has no import
            path.
    """
    given: dict[str, Any] = {}
    for name, value in by_name(options, defaults()):
        if name in given:
            raise ValueError(f"{name} must be given once, got {given[name]!r} and {value!r}")
        check_place(name, value, defaults())
        if name not in defaults() and name.removeprefix("trainer.") in OF_TRAINER:
            free = ", ".join(TRAINER_OPTIONS)
            raise ValueError(f"{name} is set by the comparison itself; the options of trainer are {free}")
        given[name] = stored_option(name, value)
    try:
        full = resolve(given)
    except ArgumentError as error:
        raise ValueError(explain(str(error), dict.fromkeys(defaults(), ""))) from error
    return {name: reduce(getitem, name.split("."), full) for name in given}


def resolve(options: Mapping[str, Any]) -> dict[str, Any]:
    """These plain values and the defaults of all other options, in the groups `model`, `data`, `trainer`."""
    config = _parser().parse_object(dict(options))
    return json.loads(_parser().dump(config, format="json", skip_unset=False))


def build(full: Mapping[str, Any], seed: int) -> tuple[Classifier, ImageData]:
    """The untrained classifier, with weights from the global random generator, and the data of one run."""
    config = _parser().parse_object(dict(full))
    shape, classes = data_shape(config.data.name, config.data.data_root)
    classifier = Classifier(**config.model.as_dict(), input_shape=shape, classes=classes, seed=seed)
    data = ImageData(**config.data.as_dict(), seed=seed)
    classifier.name_classes(data.class_names, "the data")
    return classifier, data


def build_trainer(full: Mapping[str, Any], callbacks: list[Callback]) -> Trainer:
    """A Trainer that trains on one device, deterministically, and writes and prints nothing."""
    options = full["trainer"]
    epochs = options["max_epochs"]
    if not epochs or epochs < 1:
        raise ValueError(f"trainer.max_epochs must be at least 1, got {epochs}; a run of a comparison ends")
    check_trainer(options, full["model"]["float_epochs"])
    check_above_zero(options, EVALUATED)
    with refusals_of_trainer(options["accelerator"]):
        return Trainer(**options, **FIXED, callbacks=callbacks, plugins=[WholeCkpts()])

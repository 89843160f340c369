"""The options of training: their names, their values in full, and the objects that are built from them."""

import inspect
import json
from argparse import ArgumentError
from collections.abc import Mapping
from functools import cache, reduce
from typing import Any

import torch
from jsonargparse import ArgumentParser
from lightning import Callback, Trainer

from qat.data import ImageData, data_shape
from qat.names import unknown_name
from qat.options import explain
from qat.training.classifier import Classifier

COUNTS = ("accumulate_grad_batches", "limit_train_batches", "limit_val_batches", "limit_test_batches")
CLIPPING = ("gradient_clip_val", "gradient_clip_algorithm")
TRAINER_OPTIONS = ("max_epochs", "accelerator", "precision", *COUNTS, *CLIPPING)
"""The options of Lightning's Trainer that a comparison leaves free; `build_trainer` sets the others."""
OF_THE_RUN = {"seed", "input_shape", "classes"}  # these come from the run's seed and from its data


@cache
def _parser() -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Classifier, "model", fail_untyped=False, skip=OF_THE_RUN)
    parser.add_class_arguments(ImageData, "data", fail_untyped=False, skip=OF_THE_RUN)
    others = set(inspect.signature(Trainer).parameters).difference(TRAINER_OPTIONS)
    parser.add_class_arguments(Trainer, "trainer", fail_untyped=False, skip=others)
    # As in training: "auto" would take Apple's GPU, which has no float64.
    accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    parser.set_defaults({"trainer.accelerator": accelerator, "trainer.max_epochs": 5})
    return parser


@cache
def defaults() -> dict[str, Any]:
    """The default value of each option by its dotted name, such as `model.quantization.weight_bits`."""
    return dict(_parser().get_defaults().items())


def by_name(options: Any, name: str = "") -> dict[str, Any]:
    """The values of options by their dotted names.

    Args:
        options: a mapping whose keys may be nested, dotted or both: `{"model": {"loss": "huber"}}`,
            `{"model.loss": "huber"}`; or the value of the single option `name`.
        name: the dotted name of the group or option that `options` belongs to; empty for all options.

    Raises:
        ValueError: an option does not exist or is given twice, or a group is not a mapping.
    """
    known = defaults()
    if name in known:
        return {name: options}
    if name and not any(other.startswith(f"{name}.") for other in known):
        if name.removeprefix("trainer.") in inspect.signature(Trainer).parameters:
            free = ", ".join(TRAINER_OPTIONS)
            raise ValueError(f"{name} is set by the comparison itself; the options of trainer are {free}")
        raise unknown_name("option", name, known)
    if not isinstance(options, Mapping):
        raise ValueError(f"{name or 'options'} must be a group of options, got {options!r}")
    found: dict[str, Any] = {}
    for key, value in options.items():
        for option, inner in by_name(value, f"{name}.{key}" if name else str(key)).items():
            if option in found:
                raise ValueError(f"{option} must be given once, got {found[option]!r} and {inner!r}")
            found[option] = inner
    return found


def resolve(options: Mapping[str, Any]) -> dict[str, Any]:
    """All options in full, as plain values in the groups `model`, `data` and `trainer`.

    Args:
        options: values by dotted names; the others have their defaults.

    Raises:
        ValueError: a value is of the wrong type or not among the choices.
    """
    for name, value in options.items():
        if value is None and defaults()[name] is not None:
            raise ValueError(f"{name} must not be null; leave it out for its default, {defaults()[name]!r}")
    try:
        config = _parser().parse_object(dict(options))
    except ArgumentError as error:
        raise ValueError(explain(str(error), dict.fromkeys(defaults(), ""))) from error
    full: dict[str, Any] = json.loads(_parser().dump(config, format="json", skip_unset=False))
    return full


def plain_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options, checked, as plain values: `1e-3`, which YAML reads as text, becomes a number."""
    full = resolve(options)
    return {name: reduce(lambda group, part: group[part], name.split("."), full) for name in options}


def build(full: Mapping[str, Any], seed: int) -> tuple[Classifier, ImageData]:
    """The untrained classifier, with weights from the global random generator, and the data of one run.

    Args:
        full: what `resolve` returns.
        seed: 0 to 2^32 - 1.

    Raises:
        ValueError: an option is out of range or does not fit the others, or the data is missing.
    """
    config = _parser().parse_object(dict(full))
    data = ImageData(**config.data.as_dict(), seed=seed)
    model: dict[str, Any] = config.model.as_dict()
    shape, classes = data_shape(config.data.name, config.data.data_root)
    return Classifier(**model, input_shape=shape, classes=classes, seed=seed), data


def build_trainer(full: Mapping[str, Any], callbacks: list[Callback]) -> Trainer:
    """A Trainer that trains on one device, deterministically, and writes and prints nothing.

    Raises:
        ValueError: an option of the trainer is out of range or does not fit this machine.
    """
    options, float_epochs = full["trainer"], full["model"]["float_epochs"]
    epochs = options["max_epochs"]
    if epochs is None or epochs < 1:
        raise ValueError(f"trainer.max_epochs must be at least 1; got {epochs}")
    if epochs <= float_epochs:
        raise ValueError(
            f"model.float_epochs must be below trainer.max_epochs ({epochs}), or no epoch is quantized; "
            f"got {float_epochs}"
        )
    for name in COUNTS:
        if options[name] is not None and options[name] <= 0:
            raise ValueError(f"trainer.{name} must be above 0, got {options[name]}; leave it out to use all")
    silent: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    silent |= {"enable_model_summary": False}
    fixed: dict[str, Any] = {"devices": 1, "deterministic": True, "num_sanity_val_steps": 0}
    try:
        return Trainer(**options, **silent, **fixed, callbacks=callbacks)
    except Exception as error:  # Lightning refuses bad options with many kinds of errors
        raise ValueError(f"trainer: {error}") from error

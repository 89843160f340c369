"""What `train` takes from YAML files, and the classes that they may name."""

import json
from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any

from jsonargparse import ActionConfigFile, Namespace  # type: ignore[attr-defined] # public, says its manual
from lightning import Callback
from lightning.fabric.plugins import ClusterEnvironment
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins import CheckpointIO, LayerSync, Precision
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies import Strategy

from qat.names import imported
from qat.options import by_name, check_place
from qat.yaml_file import read_yaml

MERGED = ("model.options", "model.quantization.layers")  # a second file adds entries to those of the first
OF_THE_DATA = "the data, data.name and data.data_root"
# Options that follow from others, which is why a file must not set them.
FOLLOWS = dict.fromkeys(("model.seed", "data.seed"), "seed_everything")
FOLLOWS |= dict.fromkeys(("model.input_shape", "model.classes"), OF_THE_DATA)
KINDS = (
    Callback,
    Logger,
    Strategy,
    Accelerator,
    Profiler,
    Precision,
    ClusterEnvironment,
    CheckpointIO,
    LayerSync,
)


class ConfigFile(ActionConfigFile):
    """The option `--config`. A file that follows another one adds to it and wins over it."""

    @staticmethod
    def apply_config(parser: Any, cfg: Namespace, dest: str, value: str) -> None:
        """Lay a file over the options so far; raises ValueError for one that is not plain YAML."""
        content = {} if (found := read_yaml(dest, value)) is None else found
        if not isinstance(content, dict):
            raise ValueError(f"{dest} must hold groups such as model, data and trainer, got {content!r}")
        # Null has a meaning for many options of the trainer.
        known = parser.get_defaults().items()
        defaults = {name: None if name.startswith("trainer.") else default for name, default in known}
        for name, given in by_name(content, defaults):
            if name in FOLLOWS and given is not None:
                raise ValueError(f"{name} follows from {FOLLOWS[name]}: leave it out of {value}")
            try:
                check_place(name, given, defaults)
            except ValueError as error:
                raise ValueError(f"{value}: {error}") from error
        for name in MERGED:
            entries, earlier = _entry(content, name), cfg.get(name)
            if isinstance(entries, dict) and isinstance(earlier, dict):
                group, _, last = name.rpartition(".")
                _entry(content, group)[last] = _merge(earlier, entries)
        ActionConfigFile.apply_config(parser, cfg, dest, json.dumps(content))


def check_classes(options: Any) -> None:
    """Refuse a class path that is not of one of Lightning's parts: building another could run anything.

    Raises:
        ValueError: a `class_path` names a function, or a class that is no callback, logger or the like; or an
            argument of the class is a function, as in `LambdaCallback`.
    """
    for path, arguments in _classes(options):
        found = imported("class_path", path)
        if not (isinstance(found, type) and issubclass(found, KINDS)):
            kinds = ", ".join(kind.__name__ for kind in KINDS)
            raise ValueError(f"class_path must name a class of Lightning's kinds ({kinds}), got {path!r}")
        for name, parameter in signature(found).parameters.items():
            if "Callable" in str(parameter.annotation) and arguments.get(name) is not None:
                raise ValueError(f"{name} of {path} must be left out: options name no function to run")


def _classes(options: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(options, Namespace):
        options = vars(options)
    if isinstance(options, Mapping):
        if "class_path" in options:
            arguments = options.get("init_args") or {}
            yield (
                str(options["class_path"]),
                vars(arguments) if isinstance(arguments, Namespace) else arguments,
            )
        options = list(options.values())
    if isinstance(options, list | tuple):
        for value in options:
            yield from _classes(value)


def _entry(content: Any, name: str) -> Any:
    """The value at a dotted name in nested mappings, or None; all of them where the name is empty."""
    for key in name.split(".") if name else ():
        content = content.get(key) if isinstance(content, dict) else None
    return content


def _merge(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: later.get(key, value) for key, value in earlier.items()} | dict(later)
    pairs = {key: (earlier.get(key), value) for key, value in both.items()}
    return {
        key: _merge(old, new) if isinstance(old, Mapping) and isinstance(new, Mapping) else new
        for key, (old, new) in pairs.items()
    }

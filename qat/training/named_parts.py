"""Parts of a run that may be user-defined, as a file names them: by a short name or an import path.

A .ckpt file imports nothing: what it names by import path must be imported already.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from qat.gradients import ROUNDINGS
from qat.layers.config import PARTS
from qat.models import MODELS
from qat.names import imported, is_import_path, stored_name, unknown_name
from qat.training.loss import LOSSES

# The arguments that take such a part, and what this package has for them.
KNOWN: dict[str, Mapping[str, Any]] = {"name": MODELS, "loss": LOSSES, "teacher": {}}
OF_QUANTIZATION: dict[str, Mapping[str, Any]] = {"rounding": ROUNDINGS}
OF_QUANTIZATION |= {name: dict.fromkeys(PARTS[name]) for name in PARTS if name != "rounding"}
PART_OPTIONS = [*(f"model.{name}" for name in KNOWN), *(f"model.quantization.{name}" for name in PARTS)]
PART_OPTIONS += ["model.quantization.layers"]
WORDS = {"name": "model"}  # what messages call a part, where it is not its argument


def is_ckpt(teacher: str) -> bool:
    """Whether a teacher is a .ckpt file, not the import path of a network."""
    path = teacher.replace(":", ".")
    is_path = is_import_path(teacher) and all(each.isidentifier() for each in path.split("."))
    return not is_path or path.endswith(".ckpt") or Path(teacher).is_file()


def stored_part(argument: str, value: Any) -> Any:
    """A part in its form in a file: `stored_name`, but a teacher that is a file keeps its name."""
    if argument == "teacher" and (value is None or (isinstance(value, str) and is_ckpt(value))):
        return value
    return stored_name(WORDS.get(argument, argument), value, (KNOWN | OF_QUANTIZATION)[argument])


def stored_option(name: str, value: Any) -> Any:
    """The option of a dotted name such as `model.quantization.rounding` in its form in a file.

    Raises ValueError for a short name that this package does not know, or as `stored_name`.
    """
    argument = name.rpartition(".")[2]
    if name == "model.quantization.layers" and isinstance(value, Mapping):
        return {
            glob: {key: stored_option(f"model.quantization.{key}", each) for key, each in override.items()}
            if isinstance(override, Mapping)
            else override
            for glob, override in value.items()
        }
    if name not in PART_OPTIONS:
        return value
    known = {**KNOWN, **OF_QUANTIZATION}[argument]
    is_short = isinstance(value, str) and not is_import_path(value)
    if is_short and value not in known and argument not in ("name", "teacher"):
        raise ValueError(f"{name}: {unknown_name('name', value, known)}")
    return stored_part(argument, value)


def user_defined(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The parts with an import path in the arguments of a classifier: argument, what it is, and the path."""
    for argument, known in KNOWN.items():
        name = settings.get(argument)
        if not isinstance(name, str) or not is_import_path(name) or name in known:
            continue
        if argument != "teacher" or not is_ckpt(name):
            yield argument, WORDS.get(argument, argument), name
    quantization = settings.get("quantization")
    if isinstance(quantization, Mapping):
        layers = quantization.get("layers")
        for options in (quantization, *(layers.values() if isinstance(layers, Mapping) else ())):
            for argument in OF_QUANTIZATION if isinstance(options, Mapping) else ():
                name = options.get(argument)
                if isinstance(name, str) and is_import_path(name):
                    yield "quantization", argument, name


def check_named_parts(ckpt: Mapping[str, Any], path: str | Path, given: Iterable[str] = ()) -> None:
    """Refuse the hyper-parameters of a .ckpt file that would import a module to build the classifier.

    Args:
        ckpt: the content of the file at `path`.
        given: the arguments that the caller sets, which replace the file's.

    Raises:
        ValueError: a part is user-defined, and its module is not imported.
    """
    saved = ckpt["hyper_parameters"]
    if not isinstance(saved, Mapping):
        raise ValueError(f"{path} must hold the arguments of a Classifier by name, got {saved!r}")
    for argument, what, name in user_defined(saved):
        if argument in given:
            continue
        try:
            imported(what, name, loads=False)
        except ValueError as error:
            names = name.replace(":", ".").split(".")[:-1]
            while len(names) > 1 and names[-1][:1].isupper():  # a class
                names.pop()
            module = ".".join(names)
            remedy = f"import {module} first (on the command line: --modules {module}), or give this argument"
            raise ValueError(f"{path}: a .ckpt file imports nothing: {error}; {remedy}") from None


def source_digests(settings: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of the source of each module from which parts of a classifier are imported."""
    digests = {}
    for _, what, name in user_defined(settings):
        imported(what, name)
        names = name.replace(":", ".").split(".")
        modules = (".".join(names[:count]) for count in range(len(names), 0, -1))
        module = next(each for each in modules if each in sys.modules)
        source = getattr(sys.modules[module], "__file__", None)
        if source is not None and Path(source).is_file():
            digests[module] = hashlib.sha256(Path(source).read_bytes()).hexdigest()
    return digests

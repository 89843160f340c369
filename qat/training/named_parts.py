"""A .ckpt file imports nothing: what it names by import path must be imported already."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from qat.models import MODELS
from qat.names import imported, is_import_path


def check_named_parts(ckpt: Mapping[str, Any], path: str | Path, given: Iterable[str] = ()) -> None:
    """Refuse the hyper-parameters of a .ckpt file that would import a module to build the network.

    Args:
        ckpt: the content of the file at `path`.
        given: the arguments that the caller sets, which replace the file's.

    Raises:
        ValueError: the network or a rounding is user-defined, and its module is not imported.
    """
    saved = ckpt["hyper_parameters"]
    if not isinstance(saved, Mapping):
        raise ValueError(f"{path} must hold the arguments of a Classifier by name, got {saved!r}")
    named = [] if "name" in given else [("name", saved.get("name", "small_cnn"))]
    if "quantization" not in given:
        named += [("rounding", name) for name in _roundings(saved.get("quantization"))]
    for what, name in named:
        if name in MODELS or (what == "rounding" and not is_import_path(name)):  # of this package, or unknown
            continue
        try:
            imported(what, str(name), loads=False)
        except ValueError as error:
            remedy = "import that module first (on the command line: --modules), or give this argument"
            raise ValueError(f"{path}: a .ckpt file imports nothing: {error}; {remedy}") from None


def _roundings(quantization: Any) -> Iterable[str]:
    """The names of all roundings in the plain form of a `Quantization`."""
    if isinstance(quantization, Mapping):
        layers = quantization.get("layers")
        for part in (quantization, *(layers.values() if isinstance(layers, Mapping) else ())):
            if isinstance(part, Mapping) and isinstance(part.get("rounding"), str):
                yield part["rounding"]

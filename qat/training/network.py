"""Build a network by its name, and find the network in a LightningModule."""

import inspect
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, cast

from lightning import LightningModule
from torch import nn

from qat.models import MODELS
from qat.names import imported, is_import_path, unknown_name


def network_of(module: LightningModule) -> nn.Module:
    """The network that a LightningModule trains, its attribute `model`."""
    network = module.model
    assert isinstance(network, nn.Module)
    return network


def build_network(name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> nn.Module:
    """Build a float network for images of a shape `(C, H, W)`.

    `name` is one of `qat.models`, or the import path of a user-defined class or function that takes
    `input_shape`, `classes` and perhaps more, its `options`: `my_module.MyNet`. Raises ValueError for an
    unknown name or option, or if the network cannot be built with these arguments.
    """
    build = MODELS[name] if name in MODELS else _imported(name)
    known = dict(inspect.signature(build).parameters)
    for needed in ("input_shape", "classes"):
        if needed not in known:
            taken = ", ".join(known) or "nothing"
            raise ValueError(f"model {name} must take input_shape and classes, it takes {taken}")
        del known[needed]
    for key, value in options.items():
        if key not in known:
            raise unknown_name(f"option of {name}", key, known)
        kinds = {int: (int,), float: (int, float)}.get(known[key].annotation, (object,))
        finite = not isinstance(value, float) or isfinite(value)
        if not isinstance(value, kinds) or isinstance(value, bool) or not finite:
            kind = f"of type {kinds[-1].__name__}" if finite else "finite"
            raise ValueError(f"option {key} of {name} must be {kind}, got {value!r}")
    try:
        return build(input_shape=shape, classes=classes, **options)
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:  # torch checks some arguments
        rule = f"{name} cannot be built with options {dict(options)} for images {shape}"
        raise ValueError(f"{rule}: {error}") from error


def _imported(path: str) -> Callable[..., nn.Module]:
    if not is_import_path(path):
        raise unknown_name("model", path, MODELS)
    found = imported("model", path)
    if not callable(found):
        raise ValueError(f"model {path} must be a class or function that builds a network, got {found!r}")
    return cast(Callable[..., nn.Module], found)

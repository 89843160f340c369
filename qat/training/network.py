"""Build a network by its name, and find the network in a LightningModule."""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from lightning import LightningModule
from torch import nn

from qat.models import MODELS
from qat.names import unknown_name


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
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ValueError(f"option {key} of {name} must be of type {kinds[-1].__name__}, got {value!r}")
    try:
        return build(input_shape=shape, classes=classes, **options)
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:  # torch checks some arguments
        rule = f"{name} cannot be built with options {dict(options)} for images {shape}"
        raise ValueError(f"{rule}: {error}") from error


def _imported(path: str) -> Callable[..., nn.Module]:
    module, _, attribute = path.rpartition(".")
    if not module:
        raise unknown_name("model", path, MODELS)
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:  # the module runs the user's code
        rule = f"model must be one of {', '.join(MODELS)}, or an import path that works"
        raise ValueError(f"{rule}; got {path!r}: {error}") from error
    if not callable(found):
        raise ValueError(f"model {path} must be a class or function that builds a network, got {found!r}")
    return found

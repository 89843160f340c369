"""Networks by name, with errors of one line."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from qat.models import MODELS
from qat.names import unknown_name


def build_network(name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> nn.Module:
    """A float network by its name.

    Args:
        name: of `qat.models`.
        shape: `(C, H, W)` of one image.
        classes: number of logits.
        options: further arguments of the network.

    Raises:
        ValueError: the name or an option is unknown, or the network cannot be built so.
    """
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    known = dict(inspect.signature(MODELS[name]).parameters)
    del known["input_shape"], known["classes"]
    for key, value in options.items():
        if key not in known:
            raise unknown_name(f"option of {name}", key, known)
        kinds = {int: (int,), float: (int, float)}.get(known[key].annotation, (object,))
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ValueError(f"option {key} of {name} must be of type {kinds[-1].__name__}, got {value!r}")
    try:
        return MODELS[name](shape, classes, **options)
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:  # torch checks what it is given
        raise ValueError(
            f"{name} cannot be built with options {dict(options)} for images {shape}: {error}"
        ) from error

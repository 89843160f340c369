"""Build a network by its name, and find the network in a LightningModule."""

import inspect
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, cast

import torch
from lightning import LightningModule
from torch import nn

from qat.models import MODELS
from qat.names import imported, is_import_path, one_line, unknown_name
from qat.quantizers import Quantizer


def network_of(module: LightningModule) -> nn.Module:
    """The network that a LightningModule trains, whatever the name of the attribute that holds it.

    It is the one child with quantizers; else, in a float run, the attribute `model`; else the module itself,
    which may hold several networks.
    """
    quantized = [child for child in module.children() if has_quantizers(child)]
    if len(quantized) == 1:
        return quantized[0]
    network = getattr(module, "model", None)
    return network if isinstance(network, nn.Module) and not quantized else module


def has_quantizers(module: nn.Module) -> bool:
    """Whether a network is quantized."""
    return any(isinstance(part, Quantizer) for part in module.modules())


def require_quantizers(module: LightningModule, callback: object) -> None:
    """Raise ValueError if a callback for quantized networks would have nothing to do."""
    if not has_quantizers(module):
        name = type(callback).__name__
        got = f"got a {type(module).__name__} without quantizers"
        remedy = f"call quantize(...) in its __init__ or configure_model, or leave {name} out"
        raise ValueError(f"{name} needs a LightningModule with a quantized network, {got}; {remedy}")


def build_network(
    name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any], what: str = "model"
) -> nn.Module:
    """Build a float network for images of a shape `(C, H, W)`.

    `name` is one of `qat.models`, or the import path of a user-defined class or function that takes
    `input_shape`, `classes` and perhaps more, its `options`: `my_module.MyNet`. Raises ValueError, which
    calls the network by `what`, for an unknown name or option, or if it cannot be built with these arguments.
    """
    build = MODELS[name] if name in MODELS else _imported(what, name)
    try:
        known = dict(inspect.signature(build).parameters)
    except ValueError:  # of a function in C
        known = {}
    for needed in ("input_shape", "classes"):
        if needed not in known:
            taken = ", ".join(known) or "nothing"
            raise ValueError(f"{what} {name} must take input_shape and classes, it takes {taken}")
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
        network = build(input_shape=shape, classes=classes, **options)
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:  # torch checks some arguments
        rule = f"{name} cannot be built with options {dict(options)} for images {shape}"
        raise ValueError(f"{rule}: {error}") from error
    if not isinstance(network, nn.Module):
        raise ValueError(f"{what} {name} must build a network, an nn.Module; got {one_line(repr(network))}")
    return network


def build_teacher(path: str, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """The frozen network of an import path, in eval mode; the seed decides what it draws.

    Raises ValueError as `build_network`, and unless it gives logits `(N, classes)`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        teacher = build_network(path, shape, classes, {}, "teacher").requires_grad_(False).eval()
    like = next(teacher.parameters(), torch.zeros(()))
    with torch.no_grad():
        logits = teacher(torch.zeros(2, *shape, device=like.device, dtype=like.dtype))
    if not isinstance(logits, torch.Tensor) or logits.shape != (2, classes):
        got = tuple(logits.shape) if isinstance(logits, torch.Tensor) else one_line(repr(logits))
        raise ValueError(f"teacher {path} must give logits (N, {classes}) for images {shape}, got {got}")
    return teacher


def _imported(what: str, path: Any) -> Callable[..., nn.Module]:
    if not isinstance(path, str) or not is_import_path(path):
        raise unknown_name(what, path, MODELS)
    found = imported(what, path)
    if not callable(found) or isinstance(found, nn.Module):
        rule = f"{what} {path} must be a class or function that builds a network"
        raise ValueError(f"{rule}, got {one_line(repr(found))}")
    return cast(Callable[..., nn.Module], found)

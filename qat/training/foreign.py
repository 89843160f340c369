"""Networks from the .ckpt files of LightningModules that are not of this package."""

from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from torch import Tensor, nn

from qat.names import imported, one_line, unknown_name
from qat.quantizers import Quantizer
from qat.training.ckpt import find_damage
from qat.training.resuming import finished_epochs


def load_network(model: str, argument: str, path: Path) -> tuple[nn.Module, str]:
    """The network that a function builds, in eval mode, with the weights of a .ckpt file, and its epochs.

    Args:
        model: the import path of a function without arguments that returns the network, quantized.
        argument: the name of the option that gives the file.
        path: a .ckpt file of Lightning, in which the network is a part of any LightningModule; or what
            `torch.save(network.state_dict(), path)` wrote.

    Raises:
        ValueError: the function does not return such a network, or the file does not hold its state once.
    """
    build = imported("model", model)
    try:
        network = build()
    except TypeError as error:
        rule = f"model {model} must be a function without arguments that returns the quantized network"
        raise ValueError(f"{rule}: {error}") from error
    if not isinstance(network, nn.Module) or not any(isinstance(m, Quantizer) for m in network.modules()):
        rule = f"model {model} must return the network after quantize(network, ...)"
        raise ValueError(f"{rule}; got a {type(network).__name__} without quantizers")
    state, epochs = _state(argument, path)
    state = _part(state, network.state_dict().keys(), f"{argument} {path}", model)
    try:
        network.load_state_dict(state)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"{argument} {path} does not fit the network of {model}: {one_line(error)}"
        ) from error
    return network.eval(), epochs


def user_images(data: str) -> tuple[Tensor, Tensor]:
    """The test images `(N, C, H, W)` and labels `(N,)` that a function returns; `data` is its import path."""
    rule = f"data {data} must be a function without arguments that returns images (N, C, H, W) and labels"
    try:
        found = imported("data", data)()
    except TypeError as error:
        raise ValueError(f"{rule}: {one_line(error)}") from error
    if not isinstance(found, tuple | list) or [type(x) for x in found] != [Tensor, Tensor]:
        raise ValueError(f"{rule}; got a {type(found).__name__}")
    images, labels = found
    if (
        images.dim() != 4
        or not images.is_floating_point()
        or len(images) < 2
        or labels.shape != images.shape[:1]
    ):
        raise ValueError(
            f"{rule}, as floats, at least 2; got shapes {tuple(images.shape)}, {tuple(labels.shape)}"
        )
    return images, labels


def _state(argument: str, path: Path) -> tuple[dict[str, Tensor], str]:
    try:
        damaged = find_damage(path.read_bytes()) if is_zipfile(path) else None
        content: Any = None if damaged else torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ValueError(f"{argument} must be a .ckpt file, but there is none at {path}") from None
    except Exception as error:  # a file of another kind makes the reader raise errors of any type
        why = f"{type(error).__name__}: its hyper-parameters must be plain values"
        raise ValueError(f"{argument} {path} cannot be read safely ({why})") from error
    if damaged:
        raise ValueError(f"{argument} {path} is damaged ({damaged} has another checksum)")
    state = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(state, dict):
        raise ValueError(f"{argument} {path} must hold a state_dict, got a {type(content).__name__}")
    try:
        return state, f", after {finished_epochs(content)} epochs"
    except (LookupError, TypeError):  # not written by Lightning
        return state, ""


def _part(state: dict[str, Tensor], keys: Any, what: str, model: str) -> dict[str, Tensor]:
    """The entries of the network, whose keys may have a prefix in the state."""
    first = next(iter(keys))
    prefixes = [key.removesuffix(first) for key in state if key == first or key.endswith(f".{first}")]
    fitting = [prefix for prefix in prefixes if all(prefix + key in state for key in keys)]
    if len(fitting) != 1:
        if fitting:
            names = ", ".join(prefix or "no prefix" for prefix in fitting)
            why = f"it holds it {len(fitting)} times ({names}); let the function return the LightningModule"
        else:
            lacking = next((p + key for p in prefixes[:1] for key in keys if p + key not in state), first)
            why = f"{unknown_name('key', lacking, map(str, state))}"
        raise ValueError(f"{what} must hold the state of the network of {model} once, but {why}")
    return {key: state[fitting[0] + key] for key in keys}

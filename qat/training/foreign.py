"""Networks from the .ckpt files of LightningModules that are not of this package."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qat.names import imported, one_line
from qat.quantizers import Quantizer


def load_network(model: str, argument: str, path: Path) -> nn.Module:
    """The network that a function builds, in eval mode, with the weights of a .ckpt file.

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
    state = _part(_state(argument, path), network.state_dict().keys(), f"{argument} {path}", model)
    try:
        network.load_state_dict(state)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"{argument} {path} does not fit the network of {model}: {one_line(error)}"
        ) from error
    return network.eval()


def _state(argument: str, path: Path) -> dict[str, Tensor]:
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ValueError(f"{argument} must be a .ckpt file, but there is none at {path}") from None
    except Exception as error:  # a file of another kind makes the reader raise errors of any type
        why = f"{type(error).__name__}: its hyper-parameters must be plain values"
        raise ValueError(f"{argument} {path} cannot be read safely ({why})") from error
    state = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(state, dict):
        raise ValueError(f"{argument} {path} must hold a state_dict, got a {type(content).__name__}")
    return state


def _part(state: dict[str, Tensor], keys: Any, what: str, model: str) -> dict[str, Tensor]:
    """The entries of the network, whose keys may have a prefix in the state."""
    first = next(iter(keys))
    prefixes = [key.removesuffix(first) for key in state if key == first or key.endswith(f".{first}")]
    fitting = [prefix for prefix in prefixes if all(prefix + key in state for key in keys)]
    if len(fitting) != 1:
        lacking = [key for prefix in prefixes[:1] for key in keys if prefix + key not in state] or [first]
        why = f"it holds it {len(fitting)} times" if fitting else f"it lacks {lacking[0]}"
        raise ValueError(f"{what} must hold the state of the network of {model} once, but {why}")
    return {key: state[fitting[0] + key] for key in keys}

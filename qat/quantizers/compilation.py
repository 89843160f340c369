"""Compile the kernels of fake-quantization, and choose which quantizers use them."""

import logging
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from qat.quantizers import kernels
from qat.quantizers.quantizer import Quantizer

log = logging.getLogger(__name__)
_built: set[str] = set()  # device types; only a cache: what it holds changes no result


def build_kernels(device: torch.device | str = "cpu", track: Callable[..., Any] = iter) -> bool:
    """Compile the kernels for a kind of device, once in a process; no quantizer uses them yet.

    The compiled code is cached on the disk: the first process needs up to 40 s, later ones some seconds.

    Args:
        device: where the tensors will be.
        track: makes an iterator of the list of kernels, and may show its progress.

    Returns:
        Whether they can be used: not without a compiler, nor with QAT_COMPILE=0 in the environment. One line
        of the log says why not.
    """
    device = torch.device(device)
    if os.environ.get("QAT_COMPILE") == "0":
        log.info("quantizers run eagerly: QAT_COMPILE=0")
        return False
    if device.type not in _built:
        try:
            for compile_one in track(kernels.warm_ups(device)):
                compile_one()
        except Exception as error:  # a missing compiler shows itself in many ways
            reason = str(error).strip().splitlines()[0]
            log.warning("quantizers run eagerly: compiling failed (%s)", reason)
            return False
        _built.add(device.type)
    return True


def compile_kernels(
    model: nn.Module, device: torch.device | str = "cpu", track: Callable[..., Any] = iter
) -> bool:
    """Compile the kernels of fake-quantization, and let the quantizers of a model use them for large tensors.

    Values and gradients are those of the eager kernels to the last bit, except for the gradient of a learned
    scale, whose sum has another order. Other models are not affected.

    Args:
        model: its quantizers use them from now on, or run eagerly if the kernels cannot be used. Copies of
            the model do the same; the `state_dict` does not say so.
        device: where the model is.
        track: makes an iterator of the list of kernels, and may show its progress.

    Returns:
        As `build_kernels`. One line of the log says what is in use.
    """
    device = torch.device(device)
    built = build_kernels(device, track)
    _use(model, device.type if built else None)
    if built:
        log.info("quantizers run through compiled kernels")
    return built


def use_eager_kernels(model: nn.Module) -> None:
    """Let the quantizers of a model run eagerly: undo `compile_kernels`."""
    _use(model, None)


def _use(model: nn.Module, compiled_on: str | None) -> None:
    for module in model.modules():
        if isinstance(module, Quantizer):
            module.compiled_on = compiled_on

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
_built: set[tuple[str, bool]] = set()  # device types, and whether midrise; it changes no result


def build_kernels(
    device: torch.device | str = "cpu", track: Callable[..., Any] = iter, midrise: bool = False
) -> bool:
    """Compile the kernels for a type of device, once per process, without using them yet.

    Midrise grids have kernels of their own.

    The compiled code is cached on disk: the first process needs up to 40 s, later ones a few seconds.

    `track` returns an iterator over the list of kernels, and may show progress. The result says whether the
    kernels can be used. Without a compiler, or with QAT_COMPILE=0 in the environment, they cannot; one line
    of the log says why.
    """
    device = torch.device(device)
    if os.environ.get("QAT_COMPILE") == "0":
        log.info("quantizers run eagerly: QAT_COMPILE=0")
        return False
    if (device.type, midrise) not in _built:
        try:
            for compile_one in track(kernels.warm_ups(device, midrise)):
                compile_one()
        except Exception as error:  # a missing compiler raises different errors
            reason = str(error).strip().splitlines()[0]
            log.warning("quantizers run eagerly: compiling failed (%s)", reason)
            return False
        _built.add((device.type, midrise))
    return True


def compile_kernels(
    model: nn.Module, device: torch.device | str = "cpu", track: Callable[..., Any] = iter
) -> bool:
    """Call `build_kernels`, and let the quantizers of a model use the kernels for large tensors.

    If the kernels cannot be used, its quantizers run eagerly. Values and gradients are those of the eager
    kernels to the last bit, except for the gradient of a learned scale, which is summed in another order.
    Copies of the model use the kernels, too; the `state_dict` does not contain the choice.
    """
    device = torch.device(device)
    quantizers = [module for module in model.modules() if isinstance(module, Quantizer)]
    kinds = {False, *(q.grid.midrise for q in quantizers)}
    built = all(build_kernels(device, track, midrise) for midrise in sorted(kinds))
    _use(model, device.type if built else None)
    if built:
        log.info("quantizers run through compiled kernels")
    return built


def use_eager_kernels(model: nn.Module) -> None:
    """Undo `compile_kernels`: let the quantizers of a model run eagerly."""
    _use(model, None)


def _use(model: nn.Module, compiled_on: str | None) -> None:
    for module in model.modules():
        if isinstance(module, Quantizer):
            module.compiled_on = compiled_on

"""The trained model as it answers in eval mode: its logits, and the codes of every quantizer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qat.export.onnx.checks import activation_quantizers
from qat.module_state import call_on, copy_buffers
from qat.progress import tracked
from qat.quantizers import Quantizer

BATCH = 100  # images at a time


@dataclass(frozen=True)
class Seen:
    """One call of a quantizer of activations.

    Args:
        name: of the quantizer.
        steps: `x / scale`, what it rounded.
        codes: what came out, as integers.
    """

    name: str
    steps: Tensor
    codes: Tensor


@torch.no_grad()
def run_trained(model: nn.Module, args: tuple[Tensor, ...], description: str) -> NDArray[np.float32]:
    """The output for all samples, batch by batch; the model stays as it is."""
    buffers = copy_buffers(model)
    starts = range(0, len(args[0]), BATCH)
    with _evaluating(model) as device:
        parts = [
            call_on(model, buffers, [x[start : start + BATCH].to(device) for x in args]).cpu()
            for start in tracked(starts, description)
        ]
    return torch.cat(parts).float().numpy()


@torch.no_grad()
def codes_of_trained(model: nn.Module, args: tuple[Tensor, ...]) -> list[Seen]:
    """What each quantizer of activations saw and gave on one batch, in the order in which they ran."""
    seen: list[Seen] = []
    hooks = [
        quantizer.register_forward_hook(_recorder(name, quantizer, seen))
        for name, quantizer in activation_quantizers(model).items()
    ]
    try:
        with _evaluating(model) as device:
            call_on(model, copy_buffers(model), [x.to(device) for x in args])
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _recorder(name: str, quantizer: Quantizer, seen: list[Seen]) -> Any:
    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        scale = quantizer.scale(inputs[0])
        zero_point = quantizer.scale.zero_point(scale)
        codes = (output.float() / scale).round() + (0 if zero_point is None else zero_point)
        seen.append(Seen(name, (inputs[0].float() / scale).cpu(), codes.int().cpu()))

    return record


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[torch.device]:
    """The model in eval mode, and where it lies; afterwards each module is in the mode that it was in."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        yield next((p.device for p in model.parameters()), torch.device("cpu"))
    finally:
        for module, training in modes.items():
            module.training = training

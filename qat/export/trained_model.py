"""The reference of every comparison: the trained model in eval mode, its logits and the codes inside it."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qat.export.readiness import activation_quantizers, zero_point_of
from qat.module_state import call_on, copy_buffers, hook_forwards, preserve_modes
from qat.progress import tracked

BATCH = 100  # images


@dataclass(frozen=True)
class QuantizerCall:
    """One call of an activation's quantizer."""

    name: str  # of the quantizer
    steps: Tensor  # x / scale, before rounding
    codes: Tensor  # the integers that it gave


def run_trained(model: nn.Module, args: tuple[Tensor, ...], description: str) -> NDArray[np.float32]:
    """The output for all samples, computed batch by batch. The model stays unchanged."""
    starts = range(0, len(args[0]), BATCH)
    parts = [
        _call(model, tuple(x[start : start + BATCH] for x in args)) for start in tracked(starts, description)
    ]
    return torch.cat(parts).float().numpy()


def codes_of_trained(model: nn.Module, args: tuple[Tensor, ...]) -> list[QuantizerCall]:
    """The calls of all quantizers of activations on one batch, in the order in which they ran."""
    quantizers, calls = activation_quantizers(model), list[QuantizerCall]()

    def record(name: str, module: nn.Module, inputs: list[Tensor], output: Tensor) -> None:
        if quantizer := quantizers.get(name):
            scale = quantizer.scale(inputs[0])
            codes = (output.float() / scale).round() + zero_point_of(quantizer, scale)
            calls.append(QuantizerCall(name, (inputs[0].float() / scale).cpu(), codes.int().cpu()))

    with hook_forwards(model, lambda *_: None, record):
        _call(model, args)
    return calls


@torch.no_grad()
def _call(model: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with preserve_modes(model):
        output: Tensor = call_on(model.eval(), copy_buffers(model), [x.to(device) for x in args])
    return output.cpu()

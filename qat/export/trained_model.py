"""The reference of every comparison: the trained model in eval mode, its logits and the codes inside it."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qat.export.readiness import activation_quantizers, zero_point_of
from qat.export.torch_state import default_torch_state
from qat.memory import Checkpointed
from qat.module_state import call_on, copy_buffers, hook_forwards, preserve_modes
from qat.progress import tracked

BATCH = 100  # images


@dataclass(frozen=True)
class QuantizerCall:
    """One call of an activation's quantizer."""

    name: str  # of the quantizer
    steps: Tensor  # x / scale, before rounding
    codes: Tensor  # the integers that it gave
    levels: int  # of its grid


def plain_copy(model: nn.Module) -> nn.Module:
    """A copy on the CPU, in eval mode and float32, in which no block is checkpointed."""
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    for module in model.modules():
        if isinstance(module, Checkpointed):
            module.__class__ = type(module).plain  # type: ignore[assignment]
    return model


def float32_model(model: nn.Module) -> nn.Module:
    """The model, or a copy in float32 where it has another dtype."""
    floats = {x.dtype for x in [*model.parameters(), *model.buffers()] if x.is_floating_point()}
    return model if floats <= {torch.float32} else copy.deepcopy(model).float()


@default_torch_state()
def run_trained(model: nn.Module, args: tuple[Tensor, ...], description: str) -> NDArray[np.float32]:
    """The output for all samples, computed batch by batch in float32. The model stays unchanged."""
    model = float32_model(model)
    starts = range(0, len(args[0]), BATCH)
    parts = [
        _call(model, tuple(x[start : start + BATCH] for x in args)) for start in tracked(starts, description)
    ]
    return torch.cat(parts).numpy()


@default_torch_state()
def codes_of_trained(model: nn.Module, args: tuple[Tensor, ...]) -> list[QuantizerCall]:
    """The calls of all quantizers of activations on one batch, in the order in which they ran."""
    model = float32_model(model)
    quantizers, calls = activation_quantizers(model), list[QuantizerCall]()

    def record(name: str, module: nn.Module, inputs: list[Tensor], output: Tensor) -> None:
        if quantizer := quantizers.get(name):
            scale = quantizer.scale(inputs[0])
            codes = (output.float() / scale).round() + zero_point_of(quantizer, scale)
            steps, levels = (inputs[0].float() / scale).cpu(), quantizer.grid.levels
            calls.append(QuantizerCall(name, steps, codes.int().cpu(), levels))

    with hook_forwards(model, lambda *_: None, record):
        _call(model, args)
    return calls


def numbered(names: list[str]) -> list[tuple[str, int]]:
    """Each name with the number of times that it occurred before: the calls of a module that runs twice."""
    return [(name, names[:i].count(name)) for i, name in enumerate(names)]


def _call(model: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with preserve_modes(model):
        output: Tensor = call_on(
            model.eval(), copy_buffers(model), [x.to(device, torch.float32) for x in args]
        )
    return output.cpu()

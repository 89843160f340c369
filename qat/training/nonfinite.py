"""Find the layer in which a loss became NaN or infinite."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from qat.module_state import call_on, copy_buffers
from qat.torch_private import tensors_in
from qat.training.ranks import any_process, of_all_processes


def has_nonfinite(x: Tensor) -> Tensor:
    """Whether any element is NaN or infinite, `()`."""
    return ~torch.isfinite(x).all()


@torch.no_grad()
def locate_nonfinite(model: nn.Module, images: Tensor) -> str:
    """Say where a batch `(N, C, H, W)` becomes NaN or infinite in a model; no state of it changes.

    All processes of a run must ask together, because observers talk to each other in a forward.
    """
    if any(any_process(has_nonfinite(images))):
        return "the images of the batch are not finite"
    for name, parameter in model.named_parameters():
        if has_nonfinite(parameter):
            return f"{name} is not finite, because an earlier step was too large: lower the learning rate"
    # Buffers are not checked: the pass that failed may have written the values into BatchNorm's statistics.
    found: list[str] = []

    def check_output(module: nn.Module, inputs: Any, output: Any) -> None:
        if not found and any(has_nonfinite(x) for x in tensors_in(output)):
            found.append(f"{names[module] or 'the model itself'} ({type(module).__name__})")

    names = {module: name for name, module in model.named_modules()}
    # After other hooks, whose outputs are checked too.
    handles = [module.register_forward_hook(check_output) for module in names]
    try:
        call_on(model, copy_buffers(model), (images,))
    finally:
        for handle in handles:
            handle.remove()
    if not found:
        return "the logits are finite, so the loss function itself is the cause"
    return f"first seen in the output of {found[0]}"


def end_together(model: nn.Module, images: Tensor, loss: Tensor, stops: bool, when: str) -> None:
    """End all processes if the loss of one is not finite or one stops, so that none waits for another.

    Raises:
        FloatingPointError: a loss is not finite; names the first layer with such an output.
        SystemExit: a process stops.
    """
    fails, ends = any_process(has_nonfinite(loss.detach()), stops)
    if fails:
        value, where = loss.item(), locate_nonfinite(model, images)
        found = of_all_processes((not math.isfinite(value), value, where))
        _, value, where = next(each for each in found if each[0])
        raise FloatingPointError(f"the loss is {value} in {when}: {where}")
    if ends:
        raise SystemExit

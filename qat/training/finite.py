"""A loss that is not finite: who saw it first."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from qat.module_state import call_on, copy_buffers


def not_finite(x: Tensor) -> bool:
    """Whether any element is NaN or infinite. Waits for the device."""
    return not bool(torch.isfinite(x).all())


@torch.no_grad()
def first_not_finite(model: nn.Module, images: Tensor) -> str:
    """Where a batch turns NaN or infinite in a model, in words.

    The batch runs once more, in the model's mode, on copies of its buffers: nothing moves.

    Args:
        model: what computes the logits.
        images: `(N, C, H, W)`.
    """
    if not_finite(images):
        return "the images of the batch hold it already"
    for name, parameter in model.named_parameters():
        if not_finite(parameter):
            return f"{name} holds it already, so an earlier step went too far: lower the learning rate"
    # Buffers are not asked: the pass that failed may have put it into BatchNorm's statistics.
    found: list[str] = []

    def watch(module: nn.Module, inputs: Any, output: Any) -> None:
        if not found and any(not_finite(x) for x in _tensors(output)):
            found.append(f"{names[module] or 'the model itself'} ({type(module).__name__}) puts it out first")

    names = {module: name for name, module in model.named_modules()}
    handles = [module.register_forward_hook(watch) for module in names]
    try:
        call_on(model, copy_buffers(model), (images,))
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else "the logits are finite, so the loss itself makes it"


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (tuple, list)):
        for part in output:
            yield from _tensors(part)

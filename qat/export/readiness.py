"""What is required of a model before it is exported."""

from typing import Any

import torch
from torch import Tensor, nn

from qat.layers import QuantActivation, QuantLayer
from qat.layers.integer_forms import rounds_half_to_even
from qat.quantizers import PowerOfTwo, Quantizer, follows_formula


def activation_quantizers(model: nn.Module) -> dict[str, Quantizer]:
    """The quantizers of activations by name, in the order of the modules."""
    of_weights = {m.weight_quantizer for m in model.modules() if isinstance(m, QuantLayer)}
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, Quantizer) and module not in of_weights
    }


@torch.no_grad()
def scale_of(quantizer: Quantizer) -> Tensor:
    """The scale that an activation's quantizer uses, `()`: positive, even if a learned one is not."""
    return quantizer.scale(torch.zeros(1)).detach()


def zero_point_of(quantizer: Quantizer, scale: Tensor) -> int:
    """The code of 0.0 of an activation's quantizer, given its scale."""
    zero_point = quantizer.scale.zero_point(scale)
    return 0 if zero_point is None else int(zero_point)


def layer_of(quantizer: str) -> str:
    """The name of the module that owns a quantizer, given the quantizer's name."""
    return quantizer.rpartition(".")[0] or quantizer


def check_ready(model: nn.Module) -> None:
    """Raise a ValueError for a model whose codes are not final, or whose codes no runtime would reproduce."""
    activations = activation_quantizers(model)
    for name, module in model.named_modules():
        for part in ("weight_quantizer", "input_quantizer", "quantizer"):
            quantizer = getattr(module, part, None)
            if isinstance(module, QuantLayer | QuantActivation) and isinstance(quantizer, nn.Module):
                _check_known(f"{name}.{part}", quantizer)
    for name, module in model.named_modules():
        if isinstance(module, Quantizer) and (why := _obstacle(module, name in activations)):
            raise ValueError(f"{layer_of(name)}: {why}")


def _check_known(name: str, quantizer: nn.Module) -> None:
    """Refuse a user-defined quantizer, of which no file could hold what its forward computes."""
    if isinstance(quantizer, nn.Identity) or follows_formula(quantizer):
        return
    rule = f"{name} is a {type(quantizer).__name__} with a forward of its own, which no file can hold"
    raise ValueError(f"{rule}; put its rule into a scale or a rounding of a qat.quantizers.Quantizer")


def _obstacle(quantizer: Quantizer, is_activation: bool) -> str:
    scale: Any = quantizer.scale.inner if isinstance(quantizer.scale, PowerOfTwo) else quantizer.scale
    if not quantizer.enabled:
        return "its quantizer is off, the model is in a float phase; export it after a quantized epoch"
    if not rounds_half_to_even(quantizer.rounding):
        return "runtimes round half to even, but its rounding does not; train it with another rounding"
    if is_activation and not getattr(scale, "batches", True):  # a user-defined scale may count none
        return (
            "the model was never calibrated, its scales saw no batch; train it, load a trained state, or run "
            "it on a batch in training mode"
        )
    if is_activation and quantizer.grid.step != 1:
        return (
            "no format holds activations of 1 signed bit, the grid {-1, +1}; give it 2 bits, or an input "
            "that is never negative"
        )
    return ""

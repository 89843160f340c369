"""Scales that nothing has set yet, in a model that was built from zeros and neither trained nor loaded."""

import warnings
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from qat.quantizers import PowerOfTwo, Quantizer
from qat.torch_private import without_torch_function

EXAMPLE: ContextVar[bool] = ContextVar("example", default=False)  # whether only an example runs


def mark_unset(quantizer: Any, name: str, sample: Tensor) -> None:
    """Remember that the sample of an activation says nothing of its scale, because it is all zeros."""
    if not sample.any():
        quantizer.unset = (name, _statistic(quantizer))


def is_unset(quantizer: Any) -> bool:
    """Whether the scale still is what it was before any data."""
    unset = getattr(quantizer, "unset", None)
    if unset is not None and unset[1] != _statistic(quantizer):
        quantizer.unset = unset = None
    return unset is not None


def expect_state(model: nn.Module) -> nn.Module:
    """Let a model be evaluated before its first batch, as Lightning does to check the validation."""
    for module in model.modules():
        if isinstance(module, Quantizer):
            vars(module).pop("unset", None)
    return model


def quantized(quantizer: Any, x: Tensor, **options: bool) -> Tensor:
    """`quantizer(x)`; in eval mode it warns, once, of a scale that nothing has set."""
    may_be_unset = not quantizer.training and getattr(quantizer, "unset", None) is not None
    if may_be_unset and not torch.compiler.is_compiling() and not EXAMPLE.get() and is_unset(quantizer):
        name, quantizer.unset = quantizer.unset[0], None
        warnings.warn(
            f"{name}: its scale was never set, so the outputs mean nothing; train the model, load a "
            "trained state, or run it on a batch in training mode",
            stacklevel=2,
        )
    y: Tensor = quantizer(x, **options)
    return y


def _statistic(quantizer: Quantizer) -> Any:
    scale: Any = quantizer.scale.inner if isinstance(quantizer.scale, PowerOfTwo) else quantizer.scale
    with without_torch_function():  # an export would take it for a part of the model
        return getattr(scale, scale.statistic).tolist()

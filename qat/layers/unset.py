"""Scales that nothing has set yet, in a model that was built from zeros and neither trained nor loaded."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from qat.quantizers import Quantizer


def expect_state(model: nn.Module) -> nn.Module:
    """Let a model be evaluated before its first batch, as Lightning does to check the validation."""
    for module in model.modules():
        if isinstance(module, Quantizer):
            module.scale.unset = None
    return model


@contextmanager
def without_warnings(model: nn.Module) -> Iterator[None]:
    """Inside it no scale counts as unset; afterwards the same ones do as before."""
    names = {m.scale: m.scale.unset for m in model.modules() if isinstance(m, Quantizer)}
    expect_state(model)
    try:
        yield
    finally:
        for scale, name in names.items():
            scale.unset = name

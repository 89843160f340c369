"""Schedules of bits: which width the quantizers have in which epoch."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from qat.layers import QuantLayer
from qat.layers.config import CONFIGURABLE_WIDTHS
from qat.quantizers import Quantizer

Schedule = dict[int, int]  # epoch -> bits from then on


def check_schedule(argument: str, schedule: Any, float_epochs: int) -> Schedule:
    """The schedule with its epochs in order.

    Raises:
        ValueError: it is no mapping of epochs to bits, does not start at epoch 0, grows, or goes together
            with float epochs.
    """
    if not isinstance(schedule, Mapping):
        raise ValueError(f"{argument} must map epochs to bits, as in {{0: 32, 2: 4, 5: 2}}; got {schedule!r}")
    try:
        found = {int(epoch): bits for epoch, bits in schedule.items()}  # keys of a JSON file are texts
    except (TypeError, ValueError):
        found = {-1: 0}
    if not found:
        return {}
    if min(found) != 0:
        raise ValueError(f"{argument} must begin at epoch 0, as in {{0: 32, 2: 4}}; got {dict(schedule)}")
    found = dict(sorted(found.items()))
    for bits in found.values():
        if type(bits) is not int or bits not in CONFIGURABLE_WIDTHS:
            allowed = ", ".join(map(str, CONFIGURABLE_WIDTHS))
            raise ValueError(f"{argument} must have bits of {allowed}; got {bits!r}")
    widths = list(found.values())
    if widths != sorted(widths, reverse=True):
        raise ValueError(
            f"{argument} must not grow, so that the last bits are those trained for; got {found}"
        )
    if float_epochs:
        raise ValueError(f"{argument} must be left out with float_epochs; begin it with {{0: 32, ...}}")
    return found


def bits_at(schedule: Schedule, epoch: int) -> int:
    """The bits in an epoch, counted from 0."""
    return schedule[max(first for first in schedule if first <= epoch)]


def quantizers_of(model: nn.Module, kind: str) -> dict[str, Quantizer]:
    """The quantizers of weights or of activations, by name."""
    modules = [module for module in model.modules() if isinstance(module, QuantLayer)]
    weights = {module.weight_quantizer for module in modules}
    named = {name: module for name, module in model.named_modules() if isinstance(module, Quantizer)}
    return {name: q for name, q in named.items() if (q in weights) == (kind == "weight")}


def check_last(kind: str, schedule: Schedule, quantizers: Mapping[str, Quantizer]) -> None:
    """Refuse a schedule that never reaches the bits of a quantizer: a ValueError."""
    last = list(schedule.values())[-1] if schedule else 0
    for name, quantizer in quantizers.items():
        own = quantizer.own_grid.bits
        if last > own:
            rule = f"{kind}_schedule must end with the bits of the network, {own} in {name}"
            raise ValueError(f"{rule}; got {schedule}")

"""Schedules of bits: which width the quantizers have in which epoch."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from qat.layers import QuantLayer
from qat.layers.config import CONFIGURABLE_WIDTHS
from qat.quantizers import Quantizer


def check_schedule(argument: str, schedule: Any, float_epochs: int) -> tuple[int, ...]:
    """The bits of each epoch; the last ones hold for the rest of the run.

    Raises:
        ValueError: it is no list of bits, grows, or goes together with float epochs.
    """
    if not isinstance(schedule, Sequence) or isinstance(schedule, str):
        rule = f"{argument} must list the bits of epoch 0, 1, ..., as in [32, 32, 4, 2]"
        raise ValueError(f"{rule}; got {schedule!r}")
    for bits in schedule:
        if type(bits) is not int or bits not in CONFIGURABLE_WIDTHS:
            allowed = ", ".join(map(str, CONFIGURABLE_WIDTHS))
            raise ValueError(f"{argument} must list bits of {allowed}; got {bits!r}")
    if list(schedule) != sorted(schedule, reverse=True):
        rule = f"{argument} must not grow, so that the run ends with the fewest bits"
        raise ValueError(f"{rule}; got {list(schedule)}")
    if schedule and float_epochs:
        raise ValueError(f"{argument} must be left out with float_epochs; begin it with 32 instead")
    return tuple(schedule)


def bits_at(schedule: Sequence[int], epoch: int) -> int:
    """The bits in an epoch, counted from 0."""
    return schedule[min(epoch, len(schedule) - 1)]


def quantizers_of(model: nn.Module, kind: str) -> dict[str, Quantizer]:
    """The quantizers of weights or of activations, by name."""
    modules = [module for module in model.modules() if isinstance(module, QuantLayer)]
    weights = {module.weight_quantizer for module in modules}
    named = {name: module for name, module in model.named_modules() if isinstance(module, Quantizer)}
    return {name: q for name, q in named.items() if (q in weights) == (kind == "weight")}


def check_last(kind: str, schedule: Sequence[int], quantizers: Mapping[str, Quantizer]) -> None:
    """Refuse a schedule that never reaches the bits of a quantizer: a ValueError."""
    for name, quantizer in quantizers.items():
        own = quantizer.own_grid.bits
        if schedule and schedule[-1] > own:
            rule = f"{kind}_schedule must end with the bits of the network, {own} in {name}"
            raise ValueError(f"{rule}; got {list(schedule)}")

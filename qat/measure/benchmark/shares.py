"""Where the time of a training step goes: convolution, BatchNorm, quantizers, the rest."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.profiler import ProfilerActivity, profile, record_function

from qat.quantizers import Quantizer

SCOPE, STEP = "qat: quantizer", "qat: step"
KINDS = ("convolution", "BatchNorm", "quantizers", "rest")
BACKWARD = "autograd::engine::evaluate_function: "


@dataclass(frozen=True)
class Shares:
    """Seconds of one step by kind, mean over several."""

    name: str
    seconds: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def profile_step(name: str, step: Callable[[], object], steps: int, device: torch.device) -> Shares:
    """Profile several calls of a training step, after one that is not counted.

    Forward: by the operator's name, or by the quantizer in whose forward it ran. Backward: by the operator
    of the forward that it belongs to.

    Args:
        name: of the row.
        step: forward, backward and optimizer.
        steps: at least 1.
        device: whose time is meant.
    """
    step()
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with _scopes(), profile(activities=activities) as profiler:
        for _ in range(steps):
            with record_function(STEP):
                step()
    time = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    return Shares(name, {kind: t / 1e6 / steps for kind, t in by_kind(list(profiler.events()), time).items()})


def by_kind(events: list[FunctionEvent], time: str) -> dict[str, float]:
    """The sum over the events of their attribute `time`, in microseconds, for each of `KINDS`."""
    forward = _forward_kinds(events)
    sums = dict.fromkeys(KINDS, 0.0)
    for event in events:
        sums[_kind(event, forward)] += getattr(event, time)
    return sums


def _kind(event: FunctionEvent, forward: dict[int, str]) -> str:
    """What an event is part of: the outermost of those around it that says so."""
    found = "rest"
    for outer in _around(event):
        found = _own_kind(outer, forward) or found
    return found


def _own_kind(event: FunctionEvent, forward: dict[int, str]) -> str | None:
    name = event.name.lower()
    if event.name == SCOPE:
        return "quantizers"
    if "convolution" in name or "conv2d" in name:
        return "convolution"
    if "batch_norm" in name or "batchnorm" in name:
        return "BatchNorm"
    return forward.get(event.sequence_nr) if event.name.startswith(BACKWARD) else None


def _forward_kinds(events: list[FunctionEvent]) -> dict[int, str]:
    """By sequence number, which a node of the backward shares with its operator: those of quantizers."""
    kinds: dict[int, str] = {}
    for event in sorted(events, key=lambda event: event.time_range.start):
        around = [outer.name for outer in _around(event)]
        if event.sequence_nr >= 0 and not any(name.startswith(BACKWARD) for name in around):
            # The number is that of the next node: the last operator to carry it made the node.
            kinds[event.sequence_nr] = "quantizers" if SCOPE in around else "rest"
    return kinds


def _around(event: FunctionEvent) -> Iterator[FunctionEvent]:
    """The event, and those that it happened in, from the inside out."""
    outer: FunctionEvent | None = event
    while outer is not None:
        yield outer
        outer = outer.cpu_parent


@contextmanager
def _scopes() -> Iterator[None]:
    """Mark what runs in a quantizer's forward."""
    open_scopes: list[Any] = []

    def enter(module: nn.Module, args: Any) -> None:
        if isinstance(module, Quantizer):
            open_scopes.append(record_function(SCOPE))
            open_scopes[-1].__enter__()

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(module, Quantizer):
            open_scopes.pop().__exit__(None, None, None)

    hooks = register_module_forward_pre_hook(enter), register_module_forward_hook(leave)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()

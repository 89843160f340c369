"""Where the time of a training step goes: convolution, BatchNorm, quantizers, the rest."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from qat.quantizers import Quantizer

QUANTIZER, STEP = "qat: quantizer", "qat: step"
KINDS = ("convolution", "BatchNorm", "quantizers", "rest")
BACKWARD = "autograd::engine::evaluate_function: "


def profile_step(step: Callable[[], object], steps: int, device: str) -> dict[str, float]:
    """The mean seconds of a training step on a device, by kind of work, after a step that is not counted.

    Work in the forward counts by the operator's name, or as a quantizer's if it ran in the forward of one.
    Work in the backward counts like the operator of the forward that it belongs to.
    """
    step()
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    marked = record_function(QUANTIZER)(Quantizer.forward)
    with patch.object(Quantizer, "forward", marked), profile(activities=activities) as profiler:
        for _ in range(steps):
            with record_function(STEP):  # its own time, between the operators, is part of the rest
                step()
    time = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    return {kind: t / 1e6 / steps for kind, t in by_kind(list(profiler.events()), time).items()}


def by_kind(events: list[FunctionEvent], time: str) -> dict[str, float]:
    """The sum over the events of their attribute `time`, in microseconds, for each of `KINDS`."""
    in_quantizer = _of_quantizers(events)
    sums = dict.fromkeys(KINDS, 0.0)
    for event in events:
        kinds = [kind for outer in _around(event) if (kind := _kind(outer, in_quantizer))]
        sums[kinds[-1] if kinds else "rest"] += getattr(event, time)  # the outermost that has a kind decides
    return sums


def _kind(event: FunctionEvent, in_quantizer: dict[int, bool]) -> str | None:
    name = event.name.lower()
    if event.name == QUANTIZER:
        return "quantizers"
    if "convolution" in name or "conv2d" in name:
        return "convolution"
    if "batch_norm" in name or "batchnorm" in name:
        return "BatchNorm"
    backward = event.name.startswith(BACKWARD) and event.sequence_nr in in_quantizer
    return ("quantizers" if in_quantizer[event.sequence_nr] else "rest") if backward else None


def _of_quantizers(events: list[FunctionEvent]) -> dict[int, bool]:
    """Whether a quantizer made a node of the backward, by the number that it shares with its operator."""
    found: dict[int, bool] = {}
    for event in sorted(events, key=lambda event: event.time_range.start):
        around = [outer.name for outer in _around(event)]
        if event.sequence_nr >= 0 and not any(name.startswith(BACKWARD) for name in around):
            # The number is that of the next node: the last operator to carry it made the node.
            found[event.sequence_nr] = QUANTIZER in around
    return found


def _around(event: FunctionEvent) -> Iterator[FunctionEvent]:
    """The event, and those in which it happened, from the innermost to the outermost."""
    outer: FunctionEvent | None = event
    while outer is not None:
        yield outer
        outer = outer.cpu_parent

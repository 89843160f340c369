"""The contract of a scale."""

import copy
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from qat.gradients.check import Verdict
from qat.quantizers import IntGrid, Quantizer, Scale
from qat.testing.contract import run_checks, sample, state
from qat.testing.quantizer import check_quantizer


def check_scale(scale: Scale, grid: IntGrid, x: Tensor | None = None) -> Verdict:
    """Check a scale: its state, what it measures, and its use in a quantizer.

    A scale is float32, positive, and broadcasts against its tensor. Its statistic is a buffer or parameter
    that has its final shape from construction. `measure` returns that shape and changes nothing; `observe`
    writes in place and records no graph.

    Args:
        scale: as constructed; it is not changed.
        grid: the grid for which it was made.
        x: a sample of what it will measure; by default normal values in 4 channels, `(4, 6, 5, 5)`.

    Returns:
        What was found, in one line for each check; `ok` is true if nothing failed.
    """
    x = sample(grid.low < 0) if x is None else x
    checks = {
        "forward": partial(_forward, scale, x),
        "measure": partial(_measure, scale, x),
        "observe": partial(_observe, scale, x),
    }
    found = run_checks(checks)
    if all(finding.status == "ok" for finding in found):
        found += check_quantizer(Quantizer(grid, copy.deepcopy(scale)), x).findings
    return Verdict(type(scale).__name__, "the contract of a scale", tuple(found))


def _forward(scale: Scale, x: Tensor) -> Iterator[str]:
    if not isinstance(getattr(scale, scale.statistic, None), Tensor):
        yield f"`statistic` is {scale.statistic!r}, which is no parameter or buffer of the scale"
    found = copy.deepcopy(scale)(x)
    if found.dtype != torch.float32:
        yield f"the scale is {found.dtype}; it must be torch.float32"
    if not (found > 0).all() or not found.isfinite().all():
        yield "the scale is not positive and finite after construction"
    axes = zip(reversed(found.shape), reversed(x.shape), strict=False)
    if found.dim() > x.dim() or any(size not in (1, whole) for size, whole in axes):
        yield f"the scale has the shape {tuple(found.shape)}, which does not broadcast to {tuple(x.shape)}"


def _measure(scale: Scale, x: Tensor) -> Iterator[str]:
    if type(scale).measure is Scale.measure:
        yield "`measure` is missing: it returns the statistic of one tensor"
        return
    scale, before = copy.deepcopy(scale), state(scale)
    measured, stored = scale.measure(x), getattr(scale, scale.statistic)
    if (measured.shape, measured.dtype) != (stored.shape, stored.dtype):
        got, kept = (f"{t.dtype} {tuple(t.shape)}" for t in (measured, stored))
        yield f"`measure` returns {got}; {scale.statistic} is {kept}"
    if not measured.isfinite().all():
        yield "`measure` returns a value that is not finite"
    if any(not torch.equal(value, before[name]) for name, value in state(scale).items()):
        yield "`measure` changes the state; only `observe` may"


def _observe(scale: Scale, x: Tensor) -> Iterator[str]:
    scale = copy.deepcopy(scale)
    before = {name: (t.data_ptr(), t.shape, t.dtype) for name, t in _tensors(scale)}
    scale.observe(x.clone().requires_grad_() * 1)  # as a quantizer that forgets to detach
    for name, t in _tensors(scale):
        if not t.is_leaf:
            yield f"`observe` records a graph into {name}: decorate it with torch.no_grad()"
        elif before.get(name) != (t.data_ptr(), t.shape, t.dtype):
            yield f"`observe` replaces {name}: write in place, in the final shape and dtype"


def _tensors(scale: nn.Module) -> list[tuple[str, Tensor]]:
    return [*scale.named_parameters(), *scale.named_buffers()]

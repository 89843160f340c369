"""The contract of a scale."""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from qat.gradients import round_ste, straight_through
from qat.gradients.check import Finding, Verdict
from qat.names import one_line
from qat.quantizers import IntGrid, Quantizer, Scale
from qat.quantizers.scale import shown
from qat.testing.contract import changed, odd_batches, run_checks, same, sample, state
from qat.testing.quantizer import check_quantizer


def check_scale(scale: Scale | type[Scale], grid: IntGrid, x: Tensor | None = None) -> Verdict:
    """Check a scale: its state, what it measures, and its use in a quantizer.

    A scale is float32, positive, and broadcasts against its tensor. Its statistic is a buffer or parameter
    that has its final shape from construction. `measure` returns that shape and changes nothing; `observe`
    writes in place and records no graph; `forward` changes nothing. The scale stays positive and finite after
    batches of zeros, NaN, infinities, or no elements. In eval mode it depends on the current tensor only if
    `is_dynamic`. `is_fusible` says that the fused Function gives the same values and gradients.

    Example, a file `my_parts.py`:

        import torch
        from qat.quantizers import IntGrid, Scale
        from qat.testing import check_scale

        class Largest(Scale):
            def __init__(self, high, shape=(), axis=None):
                super().__init__(high, axis)
                self.register_buffer("value", torch.ones(shape))

            def measure(self, x):
                if x.numel() == 0:
                    return torch.full_like(self.value, torch.nan)
                axes = [a for a in range(x.dim()) if self.axis is None or a != self.axis]
                largest = x.detach().abs().amax(axes, keepdim=self.axis is not None).float()
                return torch.where(largest > 0, largest / self.high, torch.nan)

        verdict = check_scale(Largest, IntGrid(4))
        print(verdict)

    Args:
        scale: as constructed; it is not changed. A class is checked as a configuration builds it: once as
            `MyScale(high)`, and once with `shape` and `axis` for a scale of each channel.
        grid: the grid for which it was made.
        x: a sample of what it will measure; by default normal values in 4 channels, `(4, 6, 5, 5)`.

    Returns:
        What was found, in one line for each check; `ok` is true if nothing failed.

    Raises:
        ValueError: scale is no `Scale`.
    """
    x = sample(grid.low < 0) if x is None else x
    if isinstance(scale, type) and issubclass(scale, Scale):
        channels = {"shape": (len(x), *(1,) * (x.dim() - 1)), "axis": 0}
        uses = {"one scale": {}, "of each channel": channels}
        findings = [each for use, options in uses.items() for each in _built(scale, use, options, grid, x)]
        return Verdict(scale.__name__, "the contract of a scale", tuple(findings))
    if not isinstance(scale, Scale):
        raise ValueError(f"scale must be a Scale, got {shown(scale)}; a subclass of qat.quantizers.Scale")
    checks = {
        "forward": partial(_forward, scale, x),
        "measure": partial(_measure, scale, x),
        "observe": partial(_observe, scale, x),
    }
    found = run_checks(checks)
    if all(finding.status == "ok" for finding in found):
        more = {
            "scale of odd batches": partial(_odd_batches, scale, x),
            "claims": partial(_claims, scale, grid, x),
        }
        found += run_checks(more)
        found += check_quantizer(Quantizer(grid, copy.deepcopy(scale)), x).findings
    return Verdict(type(scale).__name__, "the contract of a scale", tuple(found))


def _built(
    kind: type[Scale], use: str, options: dict[str, Any], grid: IntGrid, x: Tensor
) -> Iterator[Finding]:
    try:
        scale = kind(grid.high, **options)
    except Exception as error:  # any error of user-defined code is a finding
        text = f"it must be built as {kind.__name__}(high, shape=(), axis=None): {error}"
        yield Finding(f"{use}: constructor", "failed", one_line(text))
        return
    for finding in check_scale(scale, grid, x).findings:
        yield Finding(f"{use}: {finding.check}", finding.status, finding.text)


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


def _odd_batches(scale: Scale, x: Tensor) -> Iterator[str]:
    for name, batch in odd_batches(x).items():
        one = copy.deepcopy(scale).train()
        for mode in (True, False):
            if mode:
                one.observe(batch)
            found = one.train(mode)(batch)
            if not (found > 0).all() or not found.isfinite().all():
                when = "after" if mode else "in eval mode, after"
                yield f"the scale is {found.min().item():g} {when} {name}; keep it > 0 and finite"
                break


def _claims(scale: Scale, grid: IntGrid, x: Tensor) -> Iterator[str]:
    one = copy.deepcopy(scale).train()
    one(x)
    if moved := changed(state(scale), state(one)):
        yield f"`forward` changes {', '.join(moved)}; only `observe` may"
    one.observe(x)
    if not one.eval().is_dynamic and not same(one(x).detach(), one(3 * x).detach()):
        yield "the scale depends on the current tensor in eval mode: set `is_dynamic`, or store it"
    if one.is_averaged and type(one).restart is Scale.restart and "batches" not in dict(one.named_buffers()):
        yield "`is_averaged` needs a buffer `batches`, which `restart` sets to 0, or a `restart` of its own"
    for what, batch in (("", x), (" after a ReLU", x.relu())):
        few = scale.subsample(x).relu() if what else scale.subsample(x)
        if one.axis is None and not torch.allclose(one.measure(few), one.measure(batch), rtol=1e-5):
            yield f"`measure` of `subsample` differs from that of the whole tensor{what}"
    zero_point = one.zero_point(one(x))
    if zero_point is not None and not bool(
        ((zero_point == zero_point.round()) & (zero_point >= grid.low) & (zero_point <= grid.high)).all()
    ):
        yield f"the zero point must be a whole number in {grid.low}..{grid.high}"
    if one.is_fusible:
        results = []
        for rounding in (round_ste, _composed_ste):
            leaf, quantizer = x.clone().requires_grad_(), Quantizer(grid, copy.deepcopy(scale), rounding)
            y = quantizer(leaf)
            results.append((y.detach(), *torch.autograd.grad(y.square().sum(), leaf)))
        if not all(same(a, b) for a, b in zip(*results, strict=True)):
            yield "`is_fusible` must be False: the fused Function gives other values or gradients"


def _composed_ste(x: Tensor) -> Tensor:
    return straight_through(x, torch.round)  # as `round_ste`, which a quantizer would fuse


def _tensors(scale: nn.Module) -> list[tuple[str, Tensor]]:
    return [*scale.named_parameters(), *scale.named_buffers()]

"""The contract of an observer."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from qat.gradients.check import Finding, Verdict
from qat.quantizers import IntGrid, ObservedScale, Observer
from qat.quantizers.scale import shown
from qat.testing.contract import odd_batches, run_checks, same, sample
from qat.testing.scale import check_scale

Measure = Callable[[Tensor, int | None, int], Tensor]


def check_observer(observer: Measure, grid: IntGrid | None = None, x: Tensor | None = None) -> Verdict:
    """Check an observer: what it measures, and its use in scales of activations and of weights.

    An observer is a function `(x, axis, high) -> magnitude` of the highest code: float32, not negative, of
    the shape `()`, or with an axis one number for each channel, such as `(O, 1, 1, 1)`. It records no graph
    and changes nothing; of zeros it is 0 or a small number; NaN in x makes it NaN or infinite, so that the
    batch does not count.

    Example, a file `my_parts.py`:

        from qat.testing import check_observer

        def three_sigma(x, axis, high):
            axes = [a for a in range(x.dim()) if axis is None or a != axis % x.dim()]
            square = x.detach().float().square().mean(axes, keepdim=axis is not None)
            return 3 * square.sqrt()

        verdict = check_observer(three_sigma)
        print(verdict)

    Args:
        observer: the function; it is not called with an empty tensor.
        grid: on which it is used; by default the signed one of 4 bits.
        x: a sample of what it will measure; by default normal values in 4 channels, `(4, 6, 5, 5)`.

    Returns:
        What was found, in one line for each check; `ok` is true if nothing failed.
    """
    if not callable(observer) or isinstance(observer, type):
        raise ValueError(f"observer must be a function, got {shown(observer)}; give it itself, not its name")
    grid = IntGrid(4) if grid is None else grid
    x = sample(grid.low < 0) if x is None else x
    checks: dict[str, Any] = {"magnitude": _magnitude, "channels": _channels, "numbers": _numbers}
    found = run_checks({name: partial(check, observer, x, grid.high) for name, check in checks.items()})
    if all(finding.status == "ok" for finding in found):
        channels = (len(x), *(1,) * (x.dim() - 1))
        averaged = ObservedScale(grid.high, Observer(observer, averaging_constant=0.1))
        current = ObservedScale(grid.high, Observer(observer), channels, 0)
        for use, scale in (("averaged", averaged), ("of each channel", current)):
            faults = check_scale(scale, grid, x).faults
            found += [Finding(f"{use}: {fault.check}", "failed", fault.text) for fault in faults]
            found += [] if faults else [Finding(use, "ok")]
    name = getattr(observer, "__name__", None) or repr(observer)
    return Verdict(name, "the contract of an observer", tuple(found))


def _magnitude(observer: Measure, x: Tensor, high: int) -> Iterator[str]:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        given = x.clone().to(dtype)
        got: Any = observer(given, None, high)
        if not isinstance(got, Tensor):
            yield f"it returns {type(got).__name__}; return a tensor, without .item() or float()"
            return
        if (got.shape, got.dtype) != ((), torch.float32):
            form = f"{got.dtype} {tuple(got.shape)}"
            yield f"it returns {form} for {dtype} without an axis; it must be torch.float32 ()"
        if not same(given, x.to(dtype)):
            yield "it changes x in place"
    if not same(observer(x, None, high).detach(), observer(x, None, high).detach()):
        yield "two calls differ: it has a state, or is random"
    if observer(x.clone().requires_grad_(), None, high).requires_grad:
        yield "it records a graph: detach x, or decorate it with torch.no_grad()"


def _channels(observer: Measure, x: Tensor, high: int) -> Iterator[str]:
    for axis in (0, 1):
        got = observer(x, axis, high)
        wanted = tuple(n if a == axis else 1 for a, n in enumerate(x.shape))
        if got.shape != wanted:
            yield f"it returns the shape {tuple(got.shape)} for axis {axis} of {tuple(x.shape)}, not {wanted}"
            continue
        alone = torch.stack([observer(channel, None, high) for channel in x.unbind(axis)])
        if not torch.allclose(got.flatten(), alone, rtol=1e-4):
            yield f"the magnitude of a channel (axis {axis}) is not that of the channel alone"


def _numbers(observer: Measure, x: Tensor, high: int) -> Iterator[str]:
    got = observer(x, None, high)
    if not got.isfinite().all() or (got <= 0).any():
        yield f"the magnitude must be positive and finite, got {got.min().item():g}"
    for name, batch in odd_batches(x).items():
        got = observer(batch, None, high) if batch.numel() else torch.zeros(())
        if name == "a batch of zeros" and not (got.isfinite() & (got >= 0)).all():
            yield f"{name}: the magnitude must be finite and not negative, got {got.min().item():g}"
        if name == "a batch with NaN" and got.isfinite().all():
            yield f"{name}: the magnitude must not be finite, so that the batch does not count"

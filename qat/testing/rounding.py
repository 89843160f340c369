"""The contract of a rounding."""

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from qat.gradients import Rounding
from qat.gradients.check import Finding, Verdict, check_gradient
from qat.quantizers import IntGrid, ObservedScale, Quantizer
from qat.quantizers.scale import shown
from qat.testing.contract import SEED, run_checks, same
from qat.testing.quantizer import check_quantizer

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Ties, whole numbers, and values between them; exact in every dtype.
POINTS = (torch.arange(-24, 24, dtype=torch.float64) / 8).reshape(2, 3, 2, 4)


def check_rounding(rounding: Rounding, gradient: Callable[[Tensor, Tensor], Any]) -> Verdict:
    """Check a rounding: its values, its stated gradient, and its use in a quantizer.

    A rounding maps a tensor, which is `x / scale` in a quantizer, to whole numbers at most 1 away, and whole
    numbers to themselves. It keeps shape and dtype, turns neither NaN nor infinities into numbers, and does
    not change its input. With the same state of torch's random generator it gives the same result. It does
    not clamp: the quantizer does. It has a gradient, which is finite at infinities, too.

    Example, a file `my_parts.py`:

        import torch
        from qat.gradients import straight_through
        from qat.testing import check_rounding

        def half_up(x):
            return straight_through(x, lambda x: torch.floor(x + 0.5))

        verdict = check_rounding(half_up, gradient=lambda g, x: g)
        print(verdict)

    Args:
        rounding: a function of one tensor.
        gradient: the stated gradient, `gradient(g, x)`, in torch operations, whose derivative is the stated
            second derivative; `lambda g, x: g` for `round_ste`. A second derivative may be refused instead.

    Returns:
        What was found, in one line for each check; `ok` is true if nothing failed.
    """
    if not callable(rounding) or isinstance(rounding, type):
        raise ValueError(f"rounding must be a function, got {shown(rounding)}; give it itself, not its name")
    checks = {
        "values": partial(_values, rounding),
        "dtypes and shapes": partial(_dtypes, rounding),
        "not finite": partial(_not_finite, rounding),
        "gradients": partial(_gradients, rounding),
        "input": partial(_input, rounding),
        "copies": partial(_copies, rounding),
    }
    found = run_checks(checks)
    if all(finding.status == "ok" for finding in found):
        found += check_gradient(rounding, POINTS[:1] + 0.04, surrogate=gradient).findings
        found += check_quantizer(Quantizer(IntGrid(4), ObservedScale(7, "ema"), rounding)).faults
    if not any(finding.status == "failed" for finding in found) and not _ties_go_to_even(rounding):
        text = "not rounded half to even, as the exported network does: its codes differ there"
        found.append(Finding("ties", "note", text))
    name = getattr(rounding, "__name__", None) or repr(rounding)
    return Verdict(name, "the contract of a rounding and the stated gradient", tuple(found))


def _values(rounding: Rounding) -> Iterator[str]:
    y, odd = (rounding(x.clone()).detach() for x in (POINTS, 3 * torch.randn(1000)))
    if not torch.equal(y, y.round()) or not torch.equal(odd, odd.round()):
        yield "not all results are whole numbers"
    elif (y - POINTS).abs().max() > 1:
        yield "a result is more than 1 away from its input"
    whole = torch.arange(-8.0, 9)
    if not torch.equal(rounding(whole.clone()), whole):
        yield "whole numbers do not stay what they are"
    large = torch.tensor([-40000.0, -200.0, -50.0, 50.0, 200.0, 40000.0])
    if not torch.equal(rounding(large.clone()), large):
        yield "it clamps, or changes large whole numbers: the quantizer clamps, at the ends of its grid"
    torch.manual_seed(1)
    first = rounding(POINTS.clone())
    torch.manual_seed(1)
    if not same(first.detach(), rounding(POINTS.clone()).detach()):
        yield "two calls with one seed differ: it has a state, or random numbers that are not torch's"


def _dtypes(rounding: Rounding) -> Iterator[str]:
    for dtype in DTYPES:
        for x in (POINTS.to(dtype), torch.empty(0, 3, dtype=dtype), torch.tensor(0.25, dtype=dtype)):
            y = rounding(x.clone())
            if (y.shape, y.dtype) != (x.shape, x.dtype):
                got, given = (f"{t.dtype} {tuple(t.shape)}" for t in (y, x))
                yield f"{got} for an input of {given}: keep both"
    x = POINTS.float()
    plain = _seeded(rounding, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if not same(_seeded(rounding, x), plain):
            yield "under autocast it gives another dtype or other values"
    x = x.contiguous(memory_format=torch.channels_last)
    if not rounding(x.clone()).is_contiguous(memory_format=torch.channels_last):
        yield "the memory format channels_last is lost"


def _seeded(rounding: Rounding, x: Tensor) -> Tensor:
    torch.manual_seed(SEED)
    return rounding(x.clone()).detach()


def _gradients(rounding: Rounding) -> Iterator[str]:
    for dtype in DTYPES:
        x = POINTS.clone().to(dtype).requires_grad_()
        y = rounding(x)
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y)) if y.requires_grad else (None,)
        if grad is None:
            yield f"the result has no graph for {dtype}: the input gets no gradient, not even zeros"
            return
    x = torch.tensor([torch.inf, -torch.inf, 3e38, 0.0], requires_grad=True)
    for g in (torch.zeros(4), torch.ones(4)):
        (grad,) = torch.autograd.grad(rounding(x), x, g)
        if not grad.isfinite().all():
            yield f"the gradient at an infinity is not finite for g = {g[0].item():g}"
    if rounding(POINTS.clone()).requires_grad:
        yield "the result requires a gradient though its input does not"


def _ties_go_to_even(rounding: Rounding) -> bool:
    ties = torch.arange(-7.5, 8)
    return torch.equal(rounding(ties.clone()).detach(), ties.round())


def _not_finite(rounding: Rounding) -> Iterator[str]:
    if rounding(torch.tensor([torch.nan, torch.inf, -torch.inf])).isfinite().any():
        yield "NaN or an infinity becomes a number: a network that diverges would look sound"


def _input(rounding: Rounding) -> Iterator[str]:
    x = POINTS.clone()
    rounding(x)
    if not torch.equal(x, POINTS):
        yield "it changes its input in place"


def _copies(rounding: Rounding) -> Iterator[str]:
    if not callable(copy.deepcopy(rounding)):
        yield "its deepcopy cannot be called"
    try:
        pickle.loads(pickle.dumps(rounding))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        yield f"it cannot be pickled ({error}): define it at the top of a module"

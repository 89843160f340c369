"""The contract of a rounding."""

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from qat.gradients import Rounding
from qat.gradients.check import Verdict, check_gradient
from qat.quantizers import IntGrid, ObservedScale, Quantizer
from qat.testing.contract import run_checks, same
from qat.testing.quantizer import check_quantizer

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Ties, whole numbers, and values between them; exact in every dtype.
POINTS = (torch.arange(-24, 24, dtype=torch.float64) / 8).reshape(2, 3, 2, 4)


def check_rounding(rounding: Rounding, gradient: Callable[[Tensor, Tensor], Any]) -> Verdict:
    """Check a rounding: its values, its stated gradient, and its use in a quantizer.

    A rounding maps a tensor, which is `x / scale` in a quantizer, to whole numbers at most 1 away, and whole
    numbers to themselves. It keeps shape and dtype, turns neither NaN nor infinities into numbers, and does
    not change its input. With the same state of torch's random generator it gives the same result.

    Args:
        rounding: a function of one tensor.
        gradient: the stated gradient, `gradient(g, x)`; `lambda g, x: g` for `round_ste`.

    Returns:
        What was found, in one line for each check; `ok` is true if nothing failed.
    """
    checks = {
        "values": partial(_values, rounding),
        "dtypes and shapes": partial(_dtypes, rounding),
        "not finite": partial(_not_finite, rounding),
        "input": partial(_input, rounding),
        "copies": partial(_copies, rounding),
    }
    found = run_checks(checks)
    if all(finding.status == "ok" for finding in found):
        found += check_gradient(rounding, POINTS[:1] + 0.04, surrogate=gradient).findings
        found += check_quantizer(Quantizer(IntGrid(4), ObservedScale(7, "ema"), rounding)).faults
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
    x = POINTS.float().contiguous(memory_format=torch.channels_last)
    if not rounding(x.clone()).is_contiguous(memory_format=torch.channels_last):
        yield "the memory format channels_last is lost"


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

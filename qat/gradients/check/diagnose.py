"""The mistake behind a wrong gradient or an error of autograd."""

import torch
from torch import Tensor

from qat.names import one_line

CAUSES = {
    "returned an incorrect number of gradients": "wrong number of gradients: backward returns one value for "
    "each argument of forward except ctx, None for what is not a tensor",
    "returned an invalid gradient": "wrong shape: each gradient has the shape of its input; sum over "
    "broadcast dimensions",
    "does not require grad": "autograd is off inside forward and backward: recompute inside "
    "`with torch.enable_grad()`, on `x.detach().requires_grad_()`",
    "modified by an inplace operation": "a saved tensor was changed in place",
    "has no attribute": "backward reads what forward never saved",
    "values to unpack": "backward reads another number of tensors than forward saved",
    "index out of range": "backward reads another number of tensors than forward saved",
    "is not compatible with input tensor's size": "`view` needs contiguous memory: use `reshape`",
    "legacy autograd function": "call `MyFunction.apply(...)`; forward and backward are static methods",
}


def explain_error(error: Exception) -> str:
    """One line: the cause, if the message is known, and the message."""
    message = one_line(error)
    causes = (cause for words, cause in CAUSES.items() if words in message.lower())
    return f"{next(causes, 'an error')}: {type(error).__name__}: {message[:200]}"


def explain_difference(truth: Tensor, got: Tensor, tolerance: float, source: str) -> str | None:
    """How the gradient of a backward differs from the true one, in one line; None if it does not.

    `tolerance` is relative; the absolute one is a hundredth of it. `source` is "numerical" or "stated".
    """
    bad = ~torch.isclose(got, truth, rtol=tolerance, atol=tolerance / 100, equal_nan=True)
    count, places = int(bad.sum()), bad.numel()
    if not count:
        return None
    if not got.isfinite().all() and truth.isfinite().all():
        return f"NaN or infinite at {int((~got.isfinite()).sum())} of {places} places"
    if not got.any():
        return f"the gradient is 0 or None everywhere, the {source} one is not: None returned, or graph cut"
    if not truth.any():
        return (
            f"the {source} gradient is 0 everywhere, the analytical is not; if that is "
            "intended (straight-through), state it: surrogate="
        )
    return _common_factor(truth, got, bad, tolerance, source) or _place(truth, got, bad, source)


def _common_factor(truth: Tensor, got: Tensor, bad: Tensor, tolerance: float, source: str) -> str | None:
    counts = truth.abs() > 1e-3 * truth.abs().max()
    ratio = truth[counts] / got[counts]
    factor = ratio.median()
    # Where the true gradient is 0, the ratio says nothing; a gradient there shows a wrong mask.
    masked = bad & ~counts & (got.abs() > 1e-3 * got.abs().max())
    constant = torch.allclose(ratio, factor, rtol=tolerance, atol=0)
    if not (bad[counts].all() and constant) or masked.any():
        return None
    wrong = "the sign is wrong" if abs(factor + 1) < 1e-3 else "a factor is missing"
    digits = 2 if abs(factor - 1) > 0.01 else 4
    return f"{source} / analytical = {factor.item():.{digits}f} everywhere: {wrong}"


def _place(truth: Tensor, got: Tensor, bad: Tensor, source: str) -> str:
    count, places = int(bad.sum()), bad.numel()
    first = tuple(bad.nonzero()[0].tolist())
    values = f"at {first} {source} {truth[first].item():.4g}, analytical {got[first].item() + 0.0:.4g}"
    if count < places:
        return f"wrong only at {count} of {places} places: a mask or a boundary; {values}"
    return f"wrong at all {places} places, without a common factor: another formula; {values}"

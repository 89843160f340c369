"""The check of the second derivative: it must be right, or refused by an error; never silently wrong."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from qat.gradients.check.diagnose import explain_difference
from qat.gradients.check.function_at_point import (
    FunctionAtPoint,
    backward,
    central_differences,
    inner_product,
    random_upstream,
)

# Errors that say that there is no graph are accidents, not refusals.
ACCIDENTS = (
    "does not require grad",
    "modified by an inplace operation",
    "backward through the graph a second",
)
WEIGHTS_SEED = 2  # of the v below


class RefusedError(Exception):
    """The second derivative was refused, with this message."""


def second_derivative(f: FunctionAtPoint) -> Iterator[str]:
    """Derivatives of `sum(gradients * v)`, v random, with respect to the inputs and the upstream gradients.

    Raises:
        RefusedError: wherever it would not be right, the backward of the backward raises a RuntimeError.
    """
    gs = random_upstream(f.outputs(f.arguments))
    leaves, roots = f.leaves(), [g.clone().requires_grad_() for g in gs]
    scalar = _weighted(f.gradients(leaves, roots, create_graph=True))
    variables = [*f.differentiated(leaves), *roots]
    names = [f"input {i}" for i in f.wrt] + [f"upstream gradient {i}" for i in range(len(gs))]
    refused, wrong, right = [], [], []
    for name, true, variable in zip(names, _truth(f, gs), variables, strict=True):
        try:
            got = _gradient(scalar, variable)
        except RuntimeError as error:
            if any(words in str(error) for words in ACCIDENTS):
                raise
            refused.append(" ".join(str(error).split()))
            continue
        found = torch.zeros_like(true) if got is None else got
        difference = explain_difference(true, found, 1e-3, f.source)
        if difference:
            wrong.append((name, "missing" if got is None else f"wrong: {difference}"))
        elif found.any():
            right.append(name)
    for name, what in wrong:
        yield f"with respect to {name}: {what}; {_hint(what, right)}"
    if refused and not wrong:
        raise RefusedError(refused[0])


def _hint(what: str, right: Sequence[str]) -> str:
    remedy = "save inputs and outputs, or return refuse_second_derivative(...)"
    if what != "missing" or right:
        return f"perhaps an intermediate of forward is a constant in the backward: {remedy}"
    return f"the gradient has no graph (once_differentiable, detach, NumPy) and drops out of sums: {remedy}"


def _weighted(gradients: Sequence[Tensor]) -> Tensor:
    return inner_product(gradients, random_upstream(gradients, WEIGHTS_SEED))


def _gradient(scalar: Tensor, variable: Tensor) -> Tensor | None:
    if not scalar.requires_grad:
        return None
    (found,) = torch.autograd.grad(scalar, variable, retain_graph=True, allow_unused=True)
    return found


def _truth(f: FunctionAtPoint, gs: Sequence[Tensor]) -> list[Tensor]:
    count = len(f.arguments)
    if f.surrogate is None:

        def scalar(arguments: Sequence[Any]) -> Tensor:
            xs, roots = arguments[:count], arguments[count:]
            for x in f.differentiated(xs):
                x.requires_grad_()
            return _weighted(f.gradients(xs, roots))

        wrt = [*f.wrt, *range(count, count + len(gs))]
        return central_differences(scalar, [*f.arguments, *gs], wrt)
    leaves, roots = f.leaves(), [g.clone().requires_grad_() for g in gs]
    total = _weighted(f.stated_gradients(roots, leaves))
    return backward([total], [*f.differentiated(leaves), *roots], [torch.ones_like(total)])

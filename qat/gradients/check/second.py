"""Checks of the second derivative: right, or refused by an error; never missing or wrong in silence."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from qat.gradients.check.case import Case, inner, numerical, upstream
from qat.gradients.check.diagnose import explain_difference

# Errors that say that there is no graph: accidents, no refusals.
ACCIDENTS = (
    "does not require grad",
    "modified by an inplace operation",
    "backward through the graph a second",
)


class RefusedError(Exception):
    """The second derivative was refused, with this message."""


def second_derivative(case: Case) -> Iterator[str]:
    """Derivatives of `sum(gradients * v)`, v random, with respect to the inputs and the upstream gradients.

    Raises:
        RefusedError: the backward of the backward raises a RuntimeError wherever it would not be right.
    """
    gs = upstream(case.outputs(case.arguments))
    variables, positions, scalar = _once_differentiated(case, gs)
    names = [f"input {i}" for i in case.wrt] + [f"upstream gradient {i}" for i in range(len(gs))]
    refused, wrong, right = [], [], []
    for name, true, variable in zip(names, _truth(case, gs, positions), variables, strict=True):
        try:
            got = _gradient(scalar, variable)
        except RuntimeError as error:
            if any(words in str(error) for words in ACCIDENTS):
                raise
            refused.append(" ".join(str(error).split()))
            continue
        found = torch.zeros_like(true) if got is None else got
        difference = explain_difference(true, found, 1e-3, case.source)
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
        return f"an intermediate of forward is a constant in the backward, perhaps: {remedy}"
    return f"the gradient has no graph (once_differentiable, detach, NumPy) and drops out of sums: {remedy}"


def _once_differentiated(case: Case, gs: Sequence[Tensor]) -> tuple[list[Tensor], list[int], Tensor]:
    leaves = case.leaves()
    roots = [g.clone().requires_grad_() for g in gs]
    gradients = case.gradients(leaves, roots, create_graph=True)
    variables = [leaves[i] for i in case.wrt] + roots
    positions = [*case.wrt, *range(len(leaves), len(leaves) + len(roots))]
    return variables, positions, inner(gradients, upstream(gradients, seed=2))


def _gradient(scalar: Tensor, variable: Tensor) -> Tensor | None:
    if not scalar.requires_grad:
        return None
    (found,) = torch.autograd.grad(scalar, variable, retain_graph=True, allow_unused=True)
    return found


def _truth(case: Case, gs: Sequence[Tensor], positions: Sequence[int]) -> list[Tensor]:
    count = len(case.arguments)
    if case.surrogate is None:

        def scalar(arguments: Sequence[Any]) -> Tensor:
            xs, roots = list(arguments[:count]), arguments[count:]
            for position in case.wrt:
                xs[position].requires_grad_()
            gradients = case.gradients(xs, roots)
            return inner(gradients, upstream(gradients, seed=2))

        return numerical(scalar, [*case.arguments, *gs], positions)
    leaves = case.leaves()
    roots = [g.clone().requires_grad_() for g in gs]
    stated = case.stated(roots, leaves)
    total = inner(stated, upstream(stated, seed=2))
    found = [_gradient(total, x) for x in [*(leaves[i] for i in case.wrt), *roots]]
    return [
        torch.zeros_like(x) if g is None else g
        for x, g in zip([*(leaves[i] for i in case.wrt), *roots], found, strict=True)
    ]

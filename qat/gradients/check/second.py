"""The check of the second derivative: it must be right, or refused by an error; never silently wrong."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from qat.gradients.check.diagnose import explain_difference
from qat.gradients.check.function_at_point import FunctionAtPoint, inner_product, random_upstream
from qat.names import one_line

# Errors that report a missing graph or a changed tensor are accidents, not refusals.
ACCIDENTS = (
    "does not require grad",
    "modified by an inplace operation",
    "backward through the graph a second",
)
WEIGHTS_SEED = 2  # of the random weights with which the gradients are summed


class RefusedError(Exception):
    """The second derivative was refused, with this message."""


def second_derivative(f: FunctionAtPoint) -> Iterator[str]:
    """Derivatives of the gradients with respect to the inputs and the upstream gradients.

    A RefusedError if the backward of the backward raises a RuntimeError wherever it would not be right.
    """
    gs = random_upstream(f.outputs(f.arguments))
    count = len(f.arguments)

    def gradients(*arguments: Any) -> list[Tensor]:
        xs, roots = arguments[:count], arguments[count:]
        create_graph = torch.is_grad_enabled()  # not so during central differences
        with torch.enable_grad():
            for x in f.differentiated(xs):
                x.requires_grad_()
            return f.gradients(xs, roots, create_graph)

    wrt = (*f.wrt, *range(count, count + len(gs)))
    names = [f"input {i}" for i in f.wrt] + [f"upstream gradient {i}" for i in range(len(gs))]
    first = FunctionAtPoint(gradients, (*f.arguments, *gs), wrt, None)
    leaves = first.leaves()
    outputs = first.outputs(leaves)
    weights = random_upstream(outputs, WEIGHTS_SEED)
    scalar = inner_product(outputs, weights)
    if f.surrogate is None:
        truth = first.true_gradients(weights)
    else:
        surrogate = replace(first, function=lambda *xs: f.stated_gradients(xs[count:], xs[:count]))
        truth = surrogate.gradients(surrogate.leaves(), weights)
    refused, wrong, right = [], [], []
    for name, true, variable in zip(names, truth, first.differentiated(leaves), strict=True):
        got = None
        try:
            if scalar.requires_grad:
                (got,) = torch.autograd.grad(scalar, variable, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            if any(words in str(error) for words in ACCIDENTS):
                raise
            refused.append(one_line(error))
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

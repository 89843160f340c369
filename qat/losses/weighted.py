"""A weighted sum of named losses, each of which chooses the inputs that get its gradient."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qat.gradients import stop_gradient
from qat.losses.huber import in_float32
from qat.names import unknown_name


@dataclass(frozen=True)
class Term:
    """One loss of a `WeightedLoss`.

    Args:
        loss: a function of tensors that returns a scalar.
        inputs: the names of its arguments, in order.
        weight: its factor in the sum, finite; with 0 the value is logged and the gradient is 0.
        teaches: the inputs that get its gradient; None: all of them.

    Raises:
        ValueError: the weight is not finite, there is no input, or `teaches` names something else.
    """

    loss: Callable[..., Tensor]
    inputs: tuple[str, ...]
    weight: float = 1.0
    teaches: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not abs(self.weight) < float("inf"):
            raise ValueError(f"weight must be finite, got {self.weight!r}; the default is 1.0")
        if not self.inputs:
            raise ValueError("inputs must name at least one tensor")
        for name in self.teaches or ():
            if name not in self.inputs:
                raise unknown_name("name in teaches", name, self.inputs)

    def __call__(self, tensors: Mapping[str, Tensor]) -> Tensor:
        taught = self.inputs if self.teaches is None else self.teaches
        return self.loss(*(tensors[x] if x in taught else stop_gradient(tensors[x]) for x in self.inputs))


class WeightedLoss(nn.Module):
    """`sum(weight * loss)` over named terms.

    Gradient of an input: the sum of `weight * gradient` over the terms that teach it. Under autocast the sum
    is one of float32 numbers. Without a term the constructor raises a ValueError.
    """

    def __init__(self, terms: Mapping[str, Term]) -> None:
        super().__init__()
        if not terms:
            raise ValueError("terms must name at least one loss")
        self.terms = dict(terms)

    def forward(self, **tensors: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum, and for logging the unweighted terms without a graph; a missing tensor is a ValueError."""
        missing = [name for term in self.terms.values() for name in term.inputs if name not in tensors]
        if missing:
            raise unknown_name("input of a loss", missing[0], tensors)
        values = {name: term(tensors) for name, term in self.terms.items()}
        wide = in_float32(*values.values())
        total = torch.stack(
            [term.weight * x for term, x in zip(self.terms.values(), wide, strict=True)]
        ).sum()
        return total, {name: value.detach() for name, value in values.items()}

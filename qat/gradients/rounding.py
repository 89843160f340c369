"""Roundings: one forward (round half to even), many gradients. None of them sees a scale or bits."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

Rounding = Callable[[Tensor], Tensor]


def round_zero(x: Tensor) -> Tensor:
    """Round half to even with its true gradient, which is zero.

    Forward: `round(x)`. Gradient: `0 * g`, exactly 0 everywhere.

    Shape: any -> the same. This is `torch.round` under the name that configurations use.
    """
    return torch.round(x)


class _RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


def round_ste(x: Tensor) -> Tensor:
    """Round half to even with the straight-through gradient.

    Forward: `round(x)`. Gradient: `1 * g`.

    Shape: any -> the same. Source: Bengio et al. 2013, "Estimating or propagating gradients through
    stochastic neurons", section 2.3.
    """
    return _RoundSTE.apply(x)


RoundingName = Literal["zero", "ste"]
ROUNDINGS: dict[str, Rounding] = {"zero": round_zero, "ste": round_ste}

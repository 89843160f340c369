"""Roundings: one forward (round half to even, except for the stochastic one), many gradients.

Each takes a tensor of any shape and returns one of the same shape. None of them knows the scale or the bits.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from qat.gradients.control import is_number, refuse_second_derivative
from qat.gradients.masking import masked
from qat.gradients.straight_through import straight_through

Rounding = Callable[[Tensor], Tensor]


def round_zero(x: Tensor) -> Tensor:
    """Round half to even with its true gradient, which is zero.

    Forward: `round(x)`. Gradient: `0 * g`, exactly 0 everywhere. Second derivative: 0.

    This is `torch.round` under the name that configurations use.
    """
    return torch.round(x)


def round_ste(x: Tensor) -> Tensor:
    """Round half to even with the straight-through gradient.

    Forward: `round(x)`. Gradient: `1 * g`. Second derivative: that of the identity.

    Source: Bengio et al. 2013, "Estimating or propagating gradients through stochastic neurons", section 2.3.
    """
    return straight_through(x, torch.round)


def _difference(x: Tensor, rounded: Tensor) -> Tensor:
    """`x - rounded`; 0 at infinity, as for all numbers too large for a fraction. NaN stays NaN."""
    return torch.where(x.isinf(), 0.0, x - rounded)


class _RoundEWGS(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: float) -> Tensor:
        ctx.delta = delta
        ctx.save_for_backward(x)
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        grad = g * (1 + ctx.delta * g.sign() * _difference(x, torch.round(x)))
        return refuse_second_derivative(grad, x, name="round_ewgs"), None


def round_ewgs(x: Tensor, delta: float = 1e-3) -> Tensor:
    """Round half to even with element-wise gradient scaling.

    Forward: `round(x)`. Gradient: `g (1 + delta sign(g) (x - round(x)))`, with delta >= 0; 0 is
    straight-through. It is not linear in g, so the second derivative is refused.

    Raises:
        ValueError: delta is not >= 0 and finite.
        RuntimeError: a second derivative is needed.

    Source: Lee et al. 2021, "Network quantization with element-wise gradient scaling", equation 4.
    """
    if not is_number(delta) or not 0 <= delta < math.inf:
        raise ValueError(f"delta must be >= 0, got {delta!r}; 1e-3 is the default, 0 is straight-through")
    return _RoundEWGS.apply(x, delta)


class _RoundSoft(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sharpness: float) -> Tensor:
        ctx.sharpness = sharpness
        ctx.save_for_backward(x)
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        k = ctx.sharpness
        slope = 1 - torch.tanh(k * (_difference(x, torch.floor(x)) - 0.5)) ** 2
        return g * (slope * (k / (2 * math.tanh(k / 2)))), None


def round_soft(x: Tensor, sharpness: float = 2.2) -> Tensor:
    """Round half to even with the gradient of a soft staircase.

    Forward: `round(x)`. Gradient, with k = sharpness and r = x - floor(x) - 0.5: `g k (1 - tanh^2(k r)) / (2
    tanh(k / 2))`, the derivative of the staircase `floor(x) + 0.5 + tanh(k r) / (2 tanh(k / 2))`. Second
    derivative: that of the staircase.

    Args:
        x: any shape.
        sharpness: > 0. As it goes to 0 the gradient becomes straight-through; as it goes to infinity it
            becomes 0 between the steps. 2.2 corresponds to the paper's alpha of 0.2.

    Raises:
        ValueError: sharpness is not > 0 and finite.

    Source: Gong et al. 2019, "Differentiable soft quantization", section 3.2.
    """
    if not is_number(sharpness) or not 0 < sharpness < math.inf:
        raise ValueError(
            f"sharpness must be > 0, got {sharpness!r}; 2.2 is the default, any finite number will do"
        )
    return _RoundSoft.apply(x, sharpness)


def round_stochastic(x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Round up or down at random, without bias, with the straight-through gradient.

    Forward: `floor(x + u)`, u uniform in [0, 1): up with probability `x - floor(x)`. Gradient: `1 * g`.
    Second derivative: that of the identity. Integers stay unchanged, in every dtype.

    Args:
        x: any shape.
        generator: of the random numbers, on the device of x; None: torch's global one, which a checkpointed
            block replays. `torch.compile` supports only None.

    Source: Gupta et al. 2015, "Deep learning with limited numerical precision", section 3.
    """
    return straight_through(x, lambda x: _round_at_random(x, generator))


def _round_at_random(x: Tensor, generator: torch.Generator | None) -> Tensor:
    # floor(x + u) is wrong in floating point: 3 + 0.999 is 4 in bfloat16, whose u also has too few bits for
    # small fractions. x - floor(x) is exact.
    u = torch.empty_like(x, dtype=torch.promote_types(x.dtype, torch.float32))
    low = torch.floor(x)
    # lt_ writes 0 and 1 as floats: bools are several times slower.
    return low.add_(u.uniform_(generator=generator).lt_(x - low))


class _SignSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(x.abs() <= 1)
        # x + 0 turns -0 into 0; the last term keeps NaN. Not torch.where: bools are several times slower.
        sign = torch.copysign(torch.ones((), dtype=x.dtype, device=x.device), x + 0.0)
        return sign.add_(x.clamp(-1, 1).mul_(0))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (inside,) = ctx.saved_tensors
        return masked(g, inside)


def sign_ste(x: Tensor) -> Tensor:
    """The sign, +1 for zero, with the straight-through gradient inside [-1, 1].

    Forward: `+1` where x >= 0 (-0.0 too), else `-1`; NaN stays NaN. Gradient: `g` where `-1 <= x <= 1`, else
    0. Second derivative: that of `clamp(x, -1, 1)`. One byte per element is kept.

    Source: Courbariaux et al. 2016, "Binarized neural networks", section 2.3.
    """
    return _SignSTE.apply(x)


def one_hot_argmax_ste(x: Tensor, dim: int = -1) -> Tensor:
    """1 where x is largest along a dimension, else 0, with the straight-through gradient.

    Forward: `one_hot(argmax(x))` in x's dtype; of equal elements the first counts. Gradient: `1 * g`. Second
    derivative: that of the identity.

    Source: Bengio et al. 2013, section 2.3; Jang et al. 2017 (Gumbel-softmax), section 2.2, uses the gradient
    of the softmax instead.
    """
    return straight_through(x, lambda x: torch.zeros_like(x).scatter_(dim, x.argmax(dim, keepdim=True), 1.0))


RoundingName = Literal["zero", "ste", "ewgs", "soft", "stochastic"]
ROUNDINGS: dict[str, Rounding] = {name: globals()[f"round_{name}"] for name in get_args(RoundingName)}

"""Identities, for a tensor of any shape, that change, stop or refuse the gradient."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _ChangeGradient(torch.autograd.Function):
    """Forward: `x`. Gradient: `change(g)`. Second derivative: that of `change`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.change = change
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return ctx.change(g), None


def stop_gradient(x: Tensor) -> Tensor:
    """The identity without a gradient.

    Forward: `x`. Gradient: none. This is `Tensor.detach` under the name that the field uses.
    """
    return x.detach()


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """The identity with a gradient that is `factor` times as large.

    Forward: `x`. Gradient: `factor * g`; with a factor of 0, x gets a gradient of zeros.

    Source: Esser et al. 2020 (LSQ), section 2.2, where it slows down a learned scale; a negative factor is
    the gradient reversal of Ganin & Lempitsky 2015, section 3.

    Raises:
        ValueError: factor is not a finite number.
    """
    if not is_number(factor) or not -math.inf < factor < math.inf:
        raise ValueError(f"factor must be a finite number, got {factor!r}; 0 passes a gradient of zeros")
    return _ChangeGradient.apply(x, lambda g: g * factor if factor else torch.zeros_like(g))


def clip_gradient_value(x: Tensor, limit: float) -> Tensor:
    """The identity with each element of its gradient clipped.

    Forward: `x`. Gradient: `min(max(g, -limit), limit)`. A limit that is not > 0 raises a ValueError.

    Source: Mikolov 2012, "Statistical language models based on neural networks", section 3.3.
    """
    _check_limit(limit)
    return _ChangeGradient.apply(x, lambda g: g.clamp(-limit, limit))


def clip_gradient_norm(x: Tensor, limit: float) -> Tensor:
    """The identity with a gradient whose L2 norm is at most `limit`.

    Forward: `x`. Gradient: `g * min(1, limit / |g|)`, with the norm over the whole tensor, including the
    batch, computed in float32 or wider. A limit that is not > 0 raises a ValueError.

    Source: Pascanu et al. 2013, "On the difficulty of training recurrent neural networks", section 3.2.
    """
    _check_limit(limit)
    return _ChangeGradient.apply(x, lambda g: _clip_norm(g, limit))


def _clip_norm(g: Tensor, limit: float) -> Tensor:
    # In float16 the sum of squares overflows soon, which would give a gradient of 0.
    norm = torch.linalg.vector_norm(g, dtype=torch.promote_types(g.dtype, torch.float32))
    # Scaled only if it is too long, so that a zero gradient, and its own derivative, stay zero.
    factor = (limit / norm.clamp(min=limit)).to(g.dtype)
    return torch.where(norm > limit, g * factor, g)


class _Refuse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, gradient: Tensor, *depends_on: Tensor) -> Tensor:
        ctx.name = name
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> None:
        raise RuntimeError(
            f"{ctx.name} has no second derivative: its gradient was differentiated again "
            "(create_graph=True); use a function that has one, or stop_gradient"
        )


def refuse_second_derivative(gradient: Tensor, *depends_on: Tensor, name: str) -> Tensor:
    """The identity whose backward raises: for a `backward` whose result must not be differentiated.

    Forward: `gradient`. Its own gradient: a RuntimeError with `name`.

    `torch.autograd.function.once_differentiable` is no refusal. It returns a gradient without a graph, and in
    a sum with other terms `torch.autograd.grad` then omits that term silently. Here the result depends on
    `depends_on`, so that differentiating it raises. No tensor is kept; without `create_graph=True` it costs
    nothing.

    Example, in a Function whose backward leaves torch:

        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return refuse_second_derivative(computed_elsewhere(g, x), g, x, name="my_function")

    Args:
        gradient: what the backward returns.
        depends_on: what it was computed from: the upstream gradient and the saved inputs. They may be omitted
            if `gradient` already depends on them by torch operations.
        name: of the Function, for the message.
    """
    if not torch.is_grad_enabled():
        return gradient  # it cannot be differentiated again
    return _Refuse.apply(name, gradient, *depends_on)


def _check_limit(limit: float) -> None:
    if not is_number(limit) or not limit > 0:
        raise ValueError(f"limit must be > 0, got {limit!r}; stop_gradient passes nothing at all")


def is_number(value: object) -> bool:
    """Whether it is one real number: an int, a float, one of NumPy, or a tensor with one element."""
    return hasattr(value, "__float__") and not isinstance(value, bool) and getattr(value, "ndim", 0) == 0

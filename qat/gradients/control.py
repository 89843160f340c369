"""Identities that change, stop or refuse the gradient."""

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

    Forward: `x`. Gradient: none; nothing upstream receives one through here.

    Shape: any -> the same. This is `Tensor.detach` under the name that the field uses.
    """
    return x.detach()


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """The identity with a gradient that is `factor` times as large.

    Forward: `x`. Gradient: `factor * g`.

    Args:
        x: any shape.
        factor: any number; with 0, x still gets a gradient, of zeros.

    Shape: any -> the same. Source: Esser et al. 2020 (LSQ), section 2.2, where it slows down a learned scale;
    a negative factor is the gradient reversal of Ganin & Lempitsky 2015, section 3.
    """
    return _ChangeGradient.apply(x, lambda g: g * factor)


def clip_gradient_value(x: Tensor, limit: float) -> Tensor:
    """The identity with each element of its gradient clipped.

    Forward: `x`. Gradient: `min(max(g, -limit), limit)`.

    Args:
        x: any shape.
        limit: > 0, in units of the gradient.

    Shape: any -> the same. Source: Mikolov 2012, "Statistical language models based on neural networks",
    section 3.3.

    Raises:
        ValueError: limit is not > 0.
    """
    _check_limit(limit)
    return _ChangeGradient.apply(x, lambda g: g.clamp(-limit, limit))


def clip_gradient_norm(x: Tensor, limit: float) -> Tensor:
    """The identity with a gradient whose L2 norm over the tensor is at most `limit`.

    Forward: `x`. Gradient: `g * min(1, limit / |g|)`, the norm computed in float32 at least.

    Args:
        x: any shape; the norm is taken over the whole tensor, including the batch.
        limit: > 0, in units of the gradient.

    Shape: any -> the same. Source: Pascanu et al. 2013, "On the difficulty of training recurrent neural
    networks", section 3.2, for one tensor.

    Raises:
        ValueError: limit is not > 0.
    """
    _check_limit(limit)
    return _ChangeGradient.apply(x, lambda g: _clip_norm(g, limit))


def _clip_norm(g: Tensor, limit: float) -> Tensor:
    # In float32 at least: in float16 the sum of squares overflows soon, which would give a gradient of 0.
    norm = torch.linalg.vector_norm(g, dtype=torch.promote_types(g.dtype, torch.float32))
    # Scaled only if it is too long, so that a zero gradient stays zero, and so does its own derivative.
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

    Forward: `gradient`. Its own gradient: RuntimeError, with `name`.

    `torch.autograd.function.once_differentiable` does not refuse. It returns a gradient without a graph, and
    in a sum with other terms `torch.autograd.grad` then omits that term silently. This function makes the
    returned gradient depend on its origins, so that differentiating it arrives here. It keeps no tensor, and
    costs nothing without `create_graph=True`.

    Example, in a Function whose backward leaves torch:

        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return refuse_second_derivative(computed_elsewhere(g, x), g, x, name="my_function")

    Args:
        gradient: what the backward returns.
        depends_on: what it was computed from: the incoming gradient and the saved inputs. They may be omitted
            if `gradient` already depends on them by torch operations.
        name: of the Function, for the message.

    Shape: that of `gradient`, any -> the same.

    Raises:
        RuntimeError: in the backward of the result.
    """
    if not torch.is_grad_enabled():
        return gradient  # it cannot be differentiated again
    return _Refuse.apply(name, gradient, *depends_on)


def _check_limit(limit: float) -> None:
    if not limit > 0:
        raise ValueError(f"limit must be > 0, got {limit!r}; stop_gradient passes nothing at all")

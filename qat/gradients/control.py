"""Identities that change, stop or refuse the gradient."""

from typing import Any

import torch
from torch import Tensor


def stop_gradient(x: Tensor) -> Tensor:
    """The identity without a gradient.

    Forward: `x`. Gradient: none; nothing upstream receives one through here.

    Shape: any -> the same. This is `Tensor.detach` under the name that the field uses.
    """
    return x.detach()


class _ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * ctx.factor, None


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """The identity with a gradient that is `factor` times as large.

    Forward: `x`. Gradient: `factor * g`.

    Args:
        x: any shape.
        factor: any number; 0 still gives x a gradient, of zeros.

    Shape: any -> the same. Source: Esser et al. 2020 (LSQ), section 2.2, where it slows a learned scale
    down; a negative factor is the gradient reversal of Ganin & Lempitsky 2015, section 3.
    """
    return _ScaleGradient.apply(x, factor)


class _ClipValue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> Tensor:
        ctx.limit = limit
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g.clamp(-ctx.limit, ctx.limit), None


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
    return _ClipValue.apply(x, limit)


class _ClipNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> Tensor:
        ctx.limit = limit
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        # In float32 at least: the sum of squares overflows float16 soon, which would give a gradient of 0.
        norm = torch.linalg.vector_norm(g, dtype=torch.promote_types(g.dtype, torch.float32))
        # Divided only where it is too long, so that a zero gradient stays zero, also in its own derivative.
        factor = (ctx.limit / norm.clamp(min=ctx.limit)).to(g.dtype)
        return torch.where(norm > ctx.limit, g * factor, g), None


def clip_gradient_norm(x: Tensor, limit: float) -> Tensor:
    """The identity with a gradient whose L2 norm over the tensor is at most `limit`.

    Forward: `x`. Gradient: `g * min(1, limit / |g|)`, the norm computed in float32 at least.

    Args:
        x: any shape; the norm is taken over all of it, a batch included.
        limit: > 0, in units of the gradient.

    Shape: any -> the same. Source: Pascanu et al. 2013, "On the difficulty of training recurrent neural
    networks", section 3.2, for one tensor.

    Raises:
        ValueError: limit is not > 0.
    """
    _check_limit(limit)
    return _ClipNorm.apply(x, limit)


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
    """The identity whose backward raises: what a `backward` returns when it must not be differentiated.

    Forward: `gradient`. Its own gradient: RuntimeError, with `name`.

    `torch.autograd.function.once_differentiable` does not refuse: it returns a gradient without a graph, and
    in a sum with other terms `torch.autograd.grad` then leaves that term out silently. This one makes the
    returned gradient depend on its origins, so that whoever differentiates it arrives here. It keeps no
    tensor, and costs nothing unless `create_graph=True`.

    Example, in a Function whose backward left torch:

        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return refuse_second_derivative(computed_elsewhere(g, x), g, x, name="my_function")

    Args:
        gradient: what the backward returns.
        depends_on: what it was computed from: the incoming gradient and the saved inputs. They may be left
            out where `gradient` already hangs on them by torch operations.
        name: of the Function, for the message.

    Shape: that of `gradient`, any -> the same.

    Raises:
        RuntimeError: in the backward of what it returned.
    """
    if not torch.is_grad_enabled():
        return gradient  # nobody differentiates it again
    return _Refuse.apply(name, gradient, *depends_on)


def _check_limit(limit: float) -> None:
    if not limit > 0:
        raise ValueError(f"limit must be > 0, got {limit!r}; stop_gradient passes nothing at all")

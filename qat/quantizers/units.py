"""Division and multiplication by a scale, with gradients in units of the values."""

from typing import Any

import torch
from torch import Tensor

from qat.gradients import refuse_second_derivative


class Divide(torch.autograd.Function):
    """`x / scale` and, with `Multiply`, gradients in units of the values throughout.

    The true factors `1 / scale` here and `scale` there cancel in the product, but not in floating point:
    left out, the gradient through a quantizer is `g` to the last bit.

    Forward: `v = x / scale`. Gradient of x: `g`; of a scale that wants one: the sum of `-g v`. Second
    derivative: that of the identity; where the scale learns `Multiply`, through which every g came, refuses.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        if ctx.needs_input_grad[1]:
            ctx.save_for_backward(x, scale)  # not v: x is mostly kept by others, too
        return x / scale

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None]:
        if not ctx.needs_input_grad[1]:
            return g, None
        x, scale = ctx.saved_tensors
        # Chosen, not multiplied: an infinite x outside the grid must not make the scale NaN.
        share = torch.where(g == 0, 0.0, -g * (x / scale)).sum_to_size(scale.shape).to(scale.dtype)
        return g, share


class Multiply(torch.autograd.Function):
    """`code * scale`; see `Divide`.

    Gradient of the code: `g`; of a scale that wants one: the sum of `g code`. Second derivative: that of the
    identity; refused where the scale learns.
    """

    @staticmethod
    def forward(ctx: Any, code: Tensor, scale: Tensor) -> Tensor:
        if ctx.needs_input_grad[1]:
            ctx.save_for_backward(code, scale)
        return code * scale + 0.0  # an integer has no -0.0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None]:
        if not ctx.needs_input_grad[1]:
            return g, None
        code, scale = ctx.saved_tensors
        share = (g * code).sum_to_size(scale.shape).to(scale.dtype)
        name = "a quantizer with a learned scale"
        return (
            refuse_second_derivative(g, code, scale, name=name),
            refuse_second_derivative(share, g, code, scale, name=name),
        )

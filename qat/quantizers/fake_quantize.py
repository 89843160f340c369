"""Autograd Functions of fake-quantization: one that does everything, or a division and a multiplication.

Forward: `clamp(round(x / scale), low, high) * scale`; with `relu`, of `max(x, 0)` instead of x.
"""

from typing import Any

import torch
from torch import Tensor

from qat.gradients import refuse_second_derivative
from qat.quantizers import kernels

LEARNED = "a quantizer with a learned scale"  # in the message that refuses a second derivative


class FakeQuantize(torch.autograd.Function):
    """Straight-through fake-quantization with a scale that does not learn; keeps one byte per element.

    Gradient of x: `g` where `low <= round(x / scale) <= high`, or with `clamps_first` where `low <= x / scale
    <= high`, and with `relu` only where x > 0; else 0. Second derivative: that of the identity where the
    gradient passes.

    Source: Jacob et al. 2018, "Quantization and training of neural networks", section 3.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, *options: Any) -> Tensor:
        # The options are the further arguments of `kernels.forward`.
        value, mask = kernels.forward(x, scale, *options)
        ctx.save_for_backward(mask)
        ctx.compiled = options[-1]
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (mask,) = ctx.saved_tensors
        return kernels.backward(g, mask, ctx.compiled), *(None,) * 7


class FakeQuantizeLearned(torch.autograd.Function):
    """Straight-through fake-quantization with a learned scale (LSQ); keeps x.

    Gradients, with v = x / scale: of x `g` where `low <= v <= high`, and with `relu` only where x > 0, else
    0; of the scale the sum of `g (round(v) - v)` where `low <= v <= high`, of `g low` below and of `g high`
    above. Second derivative: refused.

    Source: Esser et al. 2020, "Learned step size quantization", section 2.1.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, low: int, high: int, odd: bool, relu: bool, compiled: bool
    ) -> Tensor:
        ctx.save_for_backward(x, scale)
        ctx.options = low, high, odd, relu, compiled
        return kernels.value(x, scale, low, high, odd, compiled)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, scale = ctx.saved_tensors
        with torch.no_grad():  # a second derivative is refused below
            grad_x, grad_scale = kernels.learned_backward(g, x, scale, *ctx.options)
        found = (refuse_second_derivative(grad, g, x, scale, name=LEARNED) for grad in (grad_x, grad_scale))
        return *found, *(None,) * 5


class Divide(torch.autograd.Function):
    """`x / scale`; together with `Multiply` it keeps gradients in units of the values.

    Forward: `v = x / scale`. Gradient of x: `g`; of a scale that requires one: the sum of `-g v`. Second
    derivative: that of the identity; for a learned scale it is refused, in the backward of `Multiply`.

    The true gradient has the factor `1 / scale` here and the factor `scale` in `Multiply`. Their product is
    1, but not exactly in floating point. Both Functions omit their factor, so that the gradient through a
    quantizer is `g` to the last bit.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        if ctx.needs_input_grad[1]:
            ctx.save_for_backward(x, scale)  # not v, since other operations usually keep x anyway
        return x / scale

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None]:
        if not ctx.needs_input_grad[1]:
            return g, None
        x, scale = ctx.saved_tensors
        # Where g is 0, an infinite x outside the grid would make the product NaN.
        terms = torch.where(g == 0, 0.0, -g * (x / scale))
        return g, terms.sum_to_size(scale.shape).to(scale.dtype)


class Multiply(torch.autograd.Function):
    """`code * scale`; see `Divide`.

    Gradient of the code: `g`; of a scale that requires one: the sum of `g code`. Second derivative: that of
    the identity; refused if the scale learns.
    """

    @staticmethod
    def forward(ctx: Any, code: Tensor, scale: Tensor) -> Tensor:
        if ctx.needs_input_grad[1]:
            ctx.save_for_backward(code, scale)
        return code * scale + 0.0  # -0.0 becomes 0.0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if not ctx.needs_input_grad[1]:
            return g, None
        code, scale = ctx.saved_tensors
        grad_scale = (g * code).sum_to_size(scale.shape).to(scale.dtype)
        return tuple(refuse_second_derivative(t, g, code, scale, name=LEARNED) for t in (g, grad_scale))

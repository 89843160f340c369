"""Straight-through fake-quantizing as one Function: what is kept for the backward is as little as can be."""

from typing import Any

import torch
from torch import Tensor

from qat.gradients import refuse_second_derivative
from qat.quantizers import kernels


class FakeQuantize(torch.autograd.Function):
    """With a scale that does not learn; one byte an element is kept.

    Forward: `clamp(round(x / scale), low, high) * scale`; after a ReLU (`relu`) of `max(x, 0)` instead of x.
    Gradient of x: `g` where `low <= round(x / scale) <= high`, or where `low <= x / scale <= high`
    (`clamps_first`), after a ReLU where x > 0, too; else 0. Second derivative: that of the identity there.

    Source: Jacob et al. 2018, "Quantization and training of neural networks", section 3.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, low: int, high: int, clamps_first: bool, relu: bool
    ) -> Tensor:
        value, inside = kernels.forward(x, scale, low, high, clamps_first, relu)
        ctx.save_for_backward(inside)
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (inside,) = ctx.saved_tensors
        return kernels.backward(g, inside), None, None, None, None, None


class FakeQuantizeLearned(torch.autograd.Function):
    """With a scale that learns (LSQ); x is kept.

    Forward: `clamp(round(x / scale), low, high) * scale`; after a ReLU (`relu`) of `max(x, 0)` instead of x.
    Gradients, with v = x / scale: of x `g` where `low <= v <= high`, after a ReLU where x > 0, too, else 0;
    of the scale the sum of `g (round(v) - v)` inside and of `g low` or `g high` outside. Second derivative:
    refused.

    Source: Esser et al. 2020, "Learned step size quantization", section 2.1.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, low: int, high: int, relu: bool) -> Tensor:
        ctx.save_for_backward(x, scale)
        ctx.settings = low, high, relu
        return kernels.value(x, scale, low, high)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, scale = ctx.saved_tensors
        with torch.no_grad():  # where it would be differentiated again, it is refused below
            of_x, of_scale = kernels.learned_backward(g, x, scale, *ctx.settings)
        name = "a quantizer with a learned scale"
        return (
            refuse_second_derivative(of_x, g, x, scale, name=name),
            refuse_second_derivative(of_scale, g, x, scale, name=name),
            None,
            None,
            None,
        )

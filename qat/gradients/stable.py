"""Numerically stable functions: log-sum-exp, and ReLU with a smooth gradient."""

from typing import Any

import torch
from torch import Tensor


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        ctx.dim = dim
        # The backward computes the softmax from x: exp(x - y) would contain the rounding error of y, which in
        # bfloat16 may be 4 at 1000.
        ctx.save_for_backward(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        largest = wide.amax(dim, keepdim=True)
        # A row of -inf only (or with +inf) has no finite maximum to subtract.
        shift = torch.where(largest.isinf(), 0.0, largest)
        return ((wide - shift).exp().sum(dim, keepdim=True).log() + shift).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        # For a row of -inf only, softmax is 0 / 0; no element of it can change the result.
        dead = (x == -torch.inf).all(ctx.dim, keepdim=True)
        softmax = torch.softmax(torch.where(dead, 0.0, x), ctx.dim)
        return torch.where(dead, 0.0, g * softmax), None


def logsumexp(x: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """`log(sum(exp(x)))` along a dimension, without overflow or underflow.

    Forward: `m + log(sum(exp(x - m)))`, m the maximum, in float32 or wider. Gradient: `g softmax(x)`. Second
    derivative: `diag(s) - s s^T`, s the softmax. A row of -inf only gives -inf and the gradient 0; a row
    with +inf gives +inf and the gradient NaN, since it has none. NaN gives NaN.

    Shape: `(..., C, ...)` -> `(..., ...)`, or `(..., 1, ...)` with `keepdim`; C > 0.

    Source: Blanchard et al. 2021, "Accurately computing the log-sum-exp and softmax functions", section 1.
    """
    y = _LogSumExp.apply(x, dim)
    return y if keepdim else y.squeeze(dim)


class _ReluSoft(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * torch.sigmoid(x)


def relu_soft(x: Tensor) -> Tensor:
    """ReLU with the gradient of softplus, so that negative inputs also get a gradient.

    Forward: `max(x, 0)`, any shape; NaN stays NaN. Gradient: `g sigmoid(x)`, the derivative of `log(1 +
    exp(x))`. Second derivative: `sigmoid(x) (1 - sigmoid(x))`.

    Source: Dugas et al. 2001, "Incorporating second-order functional knowledge", section 3, for softplus.
    """
    return _ReluSoft.apply(x)

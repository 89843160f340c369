"""The Huber loss as an autograd Function (Huber 1964, "Robust estimation of a location parameter")."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from qat.names import unknown_name

Reduction = Literal["mean", "sum", "none"]


class _Huber(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, target: Tensor, delta: float) -> Tensor:
        ctx.delta = delta
        # A saved difference would have no graph back to them, and thus no second derivative.
        ctx.save_for_backward(input, target)
        size = (input - target).abs_()
        return torch.where(size < delta, 0.5 * size * size, delta * (size - 0.5 * delta))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        input, target = ctx.saved_tensors
        error = input - target
        # In this order, NaN is neither: it stays NaN, whose sign would be 0.
        grad = g * torch.where(error.abs() >= ctx.delta, ctx.delta * error.sign(), error)
        needs_input, needs_target, _ = ctx.needs_input_grad
        return grad if needs_input else None, -grad if needs_target else None, None


def huber_loss(input: Tensor, target: Tensor, delta: float = 1.0, reduction: Reduction = "mean") -> Tensor:
    """Quadratic near zero, linear beyond `delta`.

    Forward, with e = input - target: `0.5 e^2` where `|e| < delta`, else `delta (|e| - 0.5 delta)`.
    Gradient of input: `g e` where `|e| < delta`, else `g delta sign(e)`; of target: its negative.
    Second derivative: `1` where `|e| < delta`, else `0`. NaN gives NaN. Under autocast all is computed in
    float32, as by torch's losses, and so is the result.

    Args:
        input: any shape, floating point.
        target: the same shape; one-hot rows for classification.
        delta: where the quadratic part ends, > 0.
        reduction: `mean` over all elements, `sum`, or `none` (the shape of input).

    Raises:
        ValueError: the shapes differ, delta is not > 0, or the reduction is unknown.
    """
    if input.shape != target.shape:
        rule = f"huber_loss needs input and target of one shape, got {tuple(input.shape)} and"
        raise ValueError(f"{rule} {tuple(target.shape)}; reshape one of them (class indices: one-hot first)")
    if not delta > 0:
        raise ValueError(f"delta must be > 0, got {delta!r}; the default is 1.0")
    return reduced(_Huber.apply(*in_float32(input, target), delta), reduction)


def in_float32(*tensors: Tensor) -> list[Tensor]:
    """Under autocast, the tensors of lower precision in float32; else the tensors themselves."""
    return [x.float() if x.dtype in (torch.bfloat16, torch.float16) and _autocasts(x) else x for x in tensors]


def _autocasts(x: Tensor) -> bool:
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def reduced(loss: Tensor, reduction: Reduction) -> Tensor:
    """The mean or the sum of a loss, or the loss itself; another reduction is a ValueError."""
    if reduction not in get_args(Reduction):
        raise unknown_name("reduction", reduction, get_args(Reduction))
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


class HuberLoss(nn.Module):
    """`huber_loss` as a module, with the same `delta`, `reduction` and errors."""

    def __init__(self, delta: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__()
        # This raises for wrong arguments now, and not at the first batch.
        huber_loss(torch.zeros(1), torch.zeros(1), delta, reduction)
        self.delta = delta
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return huber_loss(input, target, self.delta, self.reduction)

    def extra_repr(self) -> str:
        return f"delta={self.delta}, reduction={self.reduction!r}"

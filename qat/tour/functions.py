"""The Functions that the experiments use. Some are wrong on purpose."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Square(torch.autograd.Function):
    """Forward: `x^2`. Gradient: `2 x g`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 2 * x


class SquareWrong(Square):
    """Gradient: `x g`. The factor 2 is missing."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x


class SquareOnCtx(torch.autograd.Function):
    """Stores the input on ctx, where autograd does not check its version."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2 * ctx.x


class SquareOnce(Square):
    """Gradient: `2 x g`, without a graph of the gradient."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 2 * x


class SquareWithModes(Square):
    """Records whether grad mode is on in forward and in backward."""

    modes: tuple[bool, ...] = ()

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        SquareWithModes.modes = (torch.is_grad_enabled(),)
        return Square.forward(ctx, x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        SquareWithModes.modes += (torch.is_grad_enabled(),)
        return Square.backward(ctx, g)


class TimesConstant(torch.autograd.Function):
    """Forward: `k x`. Gradient: `k g` for x, `None` for the number k."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float) -> Tensor:
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * ctx.k, None


class TimesConstantTooFew(TimesConstant):
    """Returns one gradient for two arguments."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * ctx.k


class Clip(torch.autograd.Function):
    """Forward: `min(max(x, low), high)`. Gradient: `g` inside. Records `needs_input_grad`."""

    needed: tuple[bool, ...] = ()

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward((x >= low) & (x <= high))
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, None, None]:
        (inside,) = ctx.saved_tensors
        Clip.needed = ctx.needs_input_grad
        return g * inside if ctx.needs_input_grad[0] else None, None, None


class Product(torch.autograd.Function):
    """Forward: `a b`. Computes only the gradients that are needed, and counts them."""

    computed = 0

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        for_a, for_b = ctx.needs_input_grad
        Product.computed = for_a + for_b
        return g * b if for_a else None, g * a if for_b else None


class DoubleInPlace(torch.autograd.Function):
    """Doubles its input in place, with or without `mark_dirty`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mark: bool) -> Tensor:
        if mark:
            ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * 2, None


class SigmoidAffine(torch.autograd.Function):
    """Forward: `sigmoid(x) w + b`, operations that torch differentiates itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        s = torch.sigmoid(x)
        ctx.save_for_backward(s, w)
        return s * w + b

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s, w = ctx.saved_tensors
        return g * w * s * (1 - s), g * s, g


class RecomputeWithoutGrad(torch.autograd.Function):
    """Runs a block again in the backward without switching grad mode on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: nn.Module) -> Tensor:
        ctx.block = block
        ctx.save_for_backward(x)
        return block(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        again = x.detach().requires_grad_()
        return torch.autograd.grad(ctx.block(again), again, g)[0], None

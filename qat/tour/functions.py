"""The Functions that the tour looks at: right ones, and ones that are wrong on purpose."""

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
    """Gradient: `x g`; the factor 2 is missing."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x


class SquareOnCtx(torch.autograd.Function):
    """The input hangs on ctx, past autograd's version check."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2 * ctx.x


class SquareOnce(Square):
    """Gradient: `2 x g`, without a graph of its own."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 2 * x


class Scale(torch.autograd.Function):
    """Forward: `k x`. Gradient: `k g` for x, `None` for the number k."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float) -> Tensor:
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * ctx.k, None


class ScaleShort(Scale):
    """Returns one gradient for two arguments."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * ctx.k


class Clip(torch.autograd.Function):
    """Forward: `min(max(x, low), high)`. Gradient: `g` inside. Notes which gradients were wanted."""

    wanted: tuple[bool, ...] = ()

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.low, ctx.high = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, None, None]:
        (x,) = ctx.saved_tensors
        Clip.wanted = ctx.needs_input_grad
        inside = (x >= ctx.low) & (x <= ctx.high)
        return g * inside if ctx.needs_input_grad[0] else None, None, None


class Product(torch.autograd.Function):
    """Forward: `a b`. Computes only the gradients that somebody wants, and counts them."""

    computed = 0

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        grads = tuple(
            g * x if needed else None for x, needed in zip((b, a), ctx.needs_input_grad, strict=True)
        )
        Product.computed = sum(grad is not None for grad in grads)
        return grads


class Double(torch.autograd.Function):
    """Doubles its input in place, and says so or not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, say_so: bool) -> Tensor:
        if say_so:
            ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * 2, None


class Probe(torch.autograd.Function):
    """`x^2`; notes the grad mode in each direction."""

    modes: tuple[bool, ...] = ()

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        Probe.modes = (torch.is_grad_enabled(),)
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        Probe.modes += (torch.is_grad_enabled(),)
        (x,) = ctx.saved_tensors
        return g * 2 * x


class SigmoidAffine(torch.autograd.Function):
    """Forward: `sigmoid(x) w + b`: a sum of operations that torch differentiates itself."""

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
    """Runs a block again in the backward, and forgets to switch grad mode on."""

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

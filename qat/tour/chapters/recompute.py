"""Less memory for more time: a block runs again in the backward."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from qat.memory import recompute, saved_bytes
from qat.tour.experiment import Measured
from qat.tour.functions import RecomputeWithoutGrad, SquareWithModes
from qat.tour.trace import differentiate, leaf


class EightTanh(nn.Module):
    """Eight tanh in a row, and how often they ran."""

    runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        for _ in range(8):
            x = torch.tanh(x)
        return x


class Called(nn.Module):
    """The block as `call(block, x)` runs it."""

    def __init__(self, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.block, self.call = EightTanh(), call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.block, x)


def _measure(name: str, call: Callable[[nn.Module, Tensor], Tensor]) -> Measured:
    """What autograd keeps, runs of the block, the gradient's difference, and a graph of three numbers."""
    model, x = Called(call), torch.randn(512, 512, generator=torch.Generator().manual_seed(0))
    total = saved_bytes(model, x.clone().requires_grad_()).total
    model.block.runs = 0
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x)
    values = {"kept for the backward": f"{total / 2**20:.1f} MB", "runs of the block": model.block.runs}
    (plain,) = torch.autograd.grad(EightTanh()(x).sum(), x)
    _, graphs = differentiate(model, EightTanh(), caption=name, x=leaf(-1.0, 0.0, 2.0))
    return values | {"largest difference": (gradient - plain).abs().max()}, graphs


def plain() -> Measured:
    return _measure("plain", lambda block, x: block(x))


def recomputed() -> Measured:
    return _measure("recompute", recompute)


def by_torch() -> Measured:
    return _measure("torch.utils.checkpoint", lambda block, x: checkpoint(block, x, use_reentrant=False))


def grad_mode() -> Measured:
    _, graphs = differentiate(SquareWithModes.apply, torch.square, x=leaf(1.0, 2.0))
    forward, backward = SquareWithModes.modes
    return {"outside": torch.is_grad_enabled(), "in forward": forward, "in backward": backward}, graphs


def no_enable_grad() -> Measured:
    return differentiate(lambda x: RecomputeWithoutGrad.apply(x, EightTanh()), x=leaf(1.0, 2.0))

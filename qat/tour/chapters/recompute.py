"""Less memory for more time: a block runs again in the backward."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from qat.memory import recompute, saved_bytes
from qat.tour.chapters.need import NOT_ON_THE_GRAPH
from qat.tour.experiment import Chapter, Measured
from qat.tour.functions import RecomputeWithoutGrad, SquareWithModes
from qat.tour.trace import differentiate, leaf

CHAPTER = Chapter("Memory for time")


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
    runs = model.block.runs
    (plain,) = torch.autograd.grad(EightTanh()(x).sum(), x)
    graphs = differentiate(model, EightTanh(), caption=name, x=leaf(-1.0, 0.0, 2.0)).graphs
    kept = {"kept for the backward": f"{total / 2**20:.1f} MB", "runs of the block": runs}
    return Measured(kept | {"largest difference": (gradient - plain).abs().max().item()}, graphs)


@CHAPTER.experiment(
    "Eight tanh keep eight tensors",
    why="The backward of tanh needs its output. Eight outputs of 512 x 512 float32 numbers are 8 MB.",
    expected={"kept for the backward": "8.0 MB", "runs of the block": 1, "largest difference": 0.0},
)
def plain() -> Measured:
    return _measure("plain", lambda block, x: block(x))


@CHAPTER.experiment(
    "With recomputation they keep only their input",
    why="The backward runs the block a second time. The gradient is equal to the last bit.",
    expected={"kept for the backward": "1.0 MB", "runs of the block": 2, "largest difference": 0.0},
)
def recomputed() -> Measured:
    return _measure("recompute", recompute)


@CHAPTER.experiment(
    "torch.utils.checkpoint does the same",
    why="Use it in networks: it also restores random state and autocast, and allows several outputs.",
    expected={"kept for the backward": "1.0 MB", "runs of the block": 2, "largest difference": 0.0},
)
def by_torch() -> Measured:
    return _measure("torch.utils.checkpoint", lambda block, x: checkpoint(block, x, use_reentrant=False))


@CHAPTER.experiment(
    "Grad mode is off in forward, and in backward too",
    why="forward needs no torch.no_grad(). A backward that recomputes needs torch.enable_grad().",
    expected={"outside": True, "in forward": False, "in backward": False},
)
def grad_mode() -> Measured:
    graphs = differentiate(SquareWithModes.apply, torch.square, x=leaf(1.0, 2.0)).graphs
    forward, backward = SquareWithModes.modes
    return Measured(
        {"outside": torch.is_grad_enabled(), "in forward": forward, "in backward": backward}, graphs
    )


@CHAPTER.experiment(
    "Recomputation without enable_grad",
    why="The second run builds no graph, so there is nothing to differentiate.",
    expected={"error": NOT_ON_THE_GRAPH},
)
def no_enable_grad() -> Measured:
    return differentiate(lambda x: RecomputeWithoutGrad.apply(x, EightTanh()), x=leaf(1.0, 2.0))

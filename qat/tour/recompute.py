"""Chapter 4: memory for time, by running a block again in the backward."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from qat.memory import recompute, saved_bytes
from qat.tour.experiment import Chapter, Outcome, experiment
from qat.tour.functions import Probe, RecomputeWithoutGrad
from qat.tour.graph import Graph
from qat.tour.need import NO_GRAD_FN
from qat.tour.trace import trace

DEPTH, SIZE = 8, 512


class Tanhs(nn.Module):
    """Eight tanh in a row, and how often they ran."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        for _ in range(DEPTH):
            x = torch.tanh(x)
        return x


class Calls(nn.Module):
    """A way to call a block, as a module."""

    def __init__(self, call: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(x)


def _ways(block: Tanhs) -> dict[str, Callable[[Tensor], Tensor]]:
    return {
        "plain": block,
        "recompute": lambda x: recompute(block, x),
        "torch.utils.checkpoint": lambda x: checkpoint(block, x, use_reentrant=False),
    }


def _measure(way: str) -> tuple[str, int, Tensor, Graph]:
    """MB that autograd keeps, runs of the block, the gradient, and the graph of three numbers."""
    block = Tanhs()
    call = _ways(block)[way]
    start = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    total = saved_bytes(Calls(call), start.clone().requires_grad_()).total
    block.runs = 0
    x = start.clone().requires_grad_()
    call(x).sum().backward()
    runs = block.runs
    small = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    y = call(small)
    graph = trace(y.sum(), caption=way, check=lambda x: Tanhs()(x).sum(), x=small, y=y)
    assert x.grad is not None
    return f"{total / 2**20:.1f} MB", runs, x.grad, graph


@experiment(
    "Eight tanh keep eight tensors",
    why="The backward of tanh needs its output: 8 x 512 x 512 float32 numbers of 4 bytes wait for it.",
    expected={"kept for the backward": "8.0 MB", "runs of the block": 1},
)
def plain() -> Outcome:
    total, runs, _, graph = _measure("plain")
    return Outcome({"kept for the backward": total, "runs of the block": runs}, (graph,))


@experiment(
    "Recomputed, they keep their entry alone",
    why="The block runs twice; the gradient is the same to the last bit: nothing is approximated.",
    expected={"kept for the backward": "1.0 MB", "runs of the block": 2, "largest difference": 0.0},
)
def by_hand() -> Outcome:
    return _against_plain("recompute")


@experiment(
    "torch.utils.checkpoint does the same",
    why="Use it in networks: it also restores random and autocast state, and takes several outputs.",
    expected={"kept for the backward": "1.0 MB", "runs of the block": 2, "largest difference": 0.0},
)
def by_torch() -> Outcome:
    return _against_plain("torch.utils.checkpoint")


def _against_plain(way: str) -> Outcome:
    right = _measure("plain")[2]
    total, runs, grad, graph = _measure(way)
    difference = (grad - right).abs().max().item()
    return Outcome(
        {"kept for the backward": total, "runs of the block": runs, "largest difference": difference},
        (graph,),
    )


@experiment(
    "Grad mode is off in forward, and in backward too",
    why="forward needs no no_grad of its own; a backward that recomputes must say enable_grad.",
    expected={"outside": True, "in forward": False, "in backward": False},
)
def grad_mode() -> Outcome:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    outside = torch.is_grad_enabled()
    y = Probe.apply(x)
    graph = trace(y.sum(), check=lambda x: (x * x).sum(), x=x, y=y)
    forward, backward = Probe.modes
    return Outcome({"outside": outside, "in forward": forward, "in backward": backward}, (graph,))


@experiment(
    "Recomputing without enable_grad",
    why="The second pass built no graph, so there is nothing to differentiate.",
    expected={"error": f"RuntimeError: {NO_GRAD_FN}"},
)
def no_enable_grad() -> Outcome:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = RecomputeWithoutGrad.apply(x, Tanhs())
    graph = trace(y.sum(), x=x, y=y)
    return Outcome({"error": graph.error}, (graph,))


CHAPTER = Chapter("Memory for time", (plain, by_hand, by_torch, grad_mode, no_enable_grad))

"""One error message and its causes."""

import torch

from qat.tour.chapters.need import through_numpy
from qat.tour.experiment import Measured
from qat.tour.functions import RecomputeWithoutGrad, Square, SquareOnce
from qat.tour.trace import differentiate, leaf


def causes() -> Measured:
    functions = {
        "left for NumPy": through_numpy,
        "no enable_grad in backward": lambda x: RecomputeWithoutGrad.apply(x, torch.nn.Tanh()),
        "once_differentiable, twice": lambda x: torch.autograd.grad(
            SquareOnce.apply(x), x, create_graph=True
        )[0],
        "requires_grad forgotten": lambda x: Square.apply(x.detach()),
    }
    traced = [differentiate(function, caption=cause, x=leaf(4.0)) for cause, function in functions.items()]
    graphs = [graph for _, (graph,) in traced]
    return {graph.caption: graph.error for graph in graphs}, graphs

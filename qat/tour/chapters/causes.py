"""One error message and its causes."""

import torch

from qat.tour.chapters.need import NOT_ON_THE_GRAPH, through_numpy
from qat.tour.experiment import Chapter, Measured
from qat.tour.functions import RecomputeWithoutGrad, Square, SquareOnce
from qat.tour.trace import differentiate, leaf

CHAPTER = Chapter("One error message")
CAUSES = (
    "left for NumPy",
    "no enable_grad in backward",
    "once_differentiable, twice",
    "requires_grad forgotten",
)


@CHAPTER.experiment(
    "One error message, four causes",
    why="The message says that a tensor is not on the graph. It never says why.",
    expected=dict.fromkeys(CAUSES, NOT_ON_THE_GRAPH),
)
def causes() -> Measured:
    functions = (
        through_numpy,
        lambda x: RecomputeWithoutGrad.apply(x, torch.nn.Tanh()),
        lambda x: torch.autograd.grad(SquareOnce.apply(x), x, create_graph=True)[0],
        lambda x: Square.apply(x.detach()),
    )
    graphs = [
        differentiate(function, caption=cause, x=leaf(4.0)).graphs[0]
        for cause, function in zip(CAUSES, functions, strict=True)
    ]
    return Measured({graph.caption: graph.error for graph in graphs}, graphs)

"""Chapter 9: one error message, side by side with what caused it."""

import numpy as np
import torch
from torch import Tensor

from qat.tour.experiment import Chapter, Outcome, experiment
from qat.tour.functions import RecomputeWithoutGrad, Square, SquareOnce
from qat.tour.need import NO_GRAD_FN
from qat.tour.trace import trace

ERROR = f"RuntimeError: {NO_GRAD_FN}"


@experiment(
    "One message, three causes, and the everyday one",
    why="It always says that what is differentiated is not on the graph, and never who took it off.",
    expected={
        "left for NumPy": ERROR,
        "no enable_grad in backward": ERROR,
        "once_differentiable, twice": ERROR,
        "requires_grad forgotten": ERROR,
    },
)
def causes() -> Outcome:
    def leaf(learns: bool = True) -> Tensor:
        return torch.tensor([4.0], requires_grad=learns)

    x = leaf()
    y = torch.from_numpy(np.sqrt(x.detach().numpy()))
    numpy = trace(y.sum(), caption="left for NumPy", x=x, y=y)
    x = leaf()
    y = RecomputeWithoutGrad.apply(x, torch.nn.Tanh())
    recomputed = trace(y.sum(), caption="no enable_grad in backward", x=x, y=y)
    x = leaf()
    (y,) = torch.autograd.grad(SquareOnce.apply(x), x, create_graph=True)
    once = trace(y, caption="once_differentiable, twice", x=x)
    x = leaf(learns=False)
    y = Square.apply(x)
    forgotten = trace(y.sum(), caption="requires_grad forgotten", x=x, y=y)
    graphs = (numpy, recomputed, once, forgotten)
    return Outcome({graph.caption: graph.error for graph in graphs}, graphs)


CHAPTER = Chapter("One error message", (causes,))

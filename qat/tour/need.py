"""Chapter 1: when a backward must be written by hand, and when not."""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from qat.gradients import numpy_function, round_ste, round_zero
from qat.tour.expected import AtMost, Says
from qat.tour.experiment import Chapter, Outcome, experiment
from qat.tour.functions import SigmoidAffine
from qat.tour.trace import trace

NO_GRAD_FN = "element 0 of tensors does not require grad and does not have a grad_fn"


@experiment(
    "The true gradient of rounding is zero",
    why="A staircase is flat between its steps: autograd is right, and nothing upstream ever learns.",
    expected={"forward": [0.0, 1.0, 1.0], "gradient": [0.0, 0.0, 0.0]},
)
def rounding() -> Outcome:
    x = torch.tensor([0.2, 0.7, 1.4], requires_grad=True)
    y = round_zero(x)
    graph = trace(y.sum(), check=lambda x: torch.round(x).sum(), x=x, y=y)
    return Outcome({"forward": y, "gradient": x.grad}, (graph,))


@experiment(
    "The straight-through estimator lets the gradient pass",
    why="It rounds forward and pretends to be the identity backward: the mismatch is the point.",
    expected={"forward": [0.0, 1.0, 1.0], "gradient": [1.0, 1.0, 1.0]},
)
def straight_through() -> Outcome:
    x = torch.tensor([0.2, 0.7, 1.4], requires_grad=True)
    y = round_ste(x)
    graph = trace(
        y.sum(),
        check=lambda x: round_ste(x).sum(),
        differs="On purpose: the forward is a staircase, the gradient that of the identity.",
        x=x,
        y=y,
    )
    return Outcome({"forward": y, "gradient": x.grad}, (graph,))


@experiment(
    "The graph breaks at NumPy",
    why="NumPy does not know that it is differentiated: what comes back is a new leaf.",
    expected={"requires_grad": False, "grad_fn": None, "backward": f"RuntimeError: {NO_GRAD_FN}"},
)
def broken_by_numpy() -> Outcome:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.from_numpy(np.sqrt(x.detach().numpy()))
    graph = trace(y.sum(), x=x, y=y)
    return Outcome(
        {"requires_grad": y.requires_grad, "grad_fn": y.grad_fn, "backward": graph.error}, (graph,)
    )


@experiment(
    "numpy_function mends it",
    why="NumPy becomes one node with a backward given by hand, 1 / (2 sqrt(x)): opaque, but connected.",
    expected={
        "forward": [1.0, 2.0, 3.0],
        "gradient": [1 / 2, 1 / 4, 1 / 6],
        "gradient of torch.sqrt": [1 / 2, 1 / 4, 1 / 6],
        "node": Says("NumpyNodeBackward"),
    },
)
def mended() -> Outcome:
    square_root = numpy_function(np.sqrt, lambda g, y, x: g / (2 * y))
    x = torch.tensor([1.0, 4.0, 9.0], requires_grad=True)
    y = square_root(x)
    graph = trace(y.sum(), check=lambda x: square_root(x).sum(), x=x, y=y)
    same = torch.tensor([1.0, 4.0, 9.0], requires_grad=True)
    torch.sqrt(same).sum().backward()
    return Outcome(
        {
            "forward": y,
            "gradient": x.grad,
            "gradient of torch.sqrt": same.grad,
            "node": type(y.grad_fn).__name__,
        },
        (graph,),
    )


@experiment(
    "sigmoid(x) * w + b as a Function is not faster",
    why="Autograd composes known operations rightly and in C++; by hand adds Python and places for mistakes.",
    expected={"gradients": "equal", "speed-up over plain autograd": AtMost(1.1)},
)
def not_faster() -> Outcome:
    def plain(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.sigmoid(x) * w + b

    random = torch.Generator().manual_seed(0)
    inputs = [torch.randn(512, 512, generator=random, requires_grad=True) for _ in range(3)]
    grads = [torch.autograd.grad(f(*inputs).sum(), inputs) for f in (plain, SigmoidAffine.apply)]
    equal = all(torch.allclose(a, b) for a, b in zip(*grads, strict=True))
    # The best of many, in turn: what else the machine does slows some of them, and never speeds one up.
    pairs = [(_seconds(plain, inputs), _seconds(SigmoidAffine.apply, inputs)) for _ in range(30)]
    best_plain, best_custom = map(min, zip(*pairs, strict=True))
    x, w, b = (torch.tensor([v], requires_grad=True) for v in (0.0, 2.0, 1.0))
    y = SigmoidAffine.apply(x, w, b)
    by_hand = trace(
        y.sum(), caption="by hand", check=lambda x, w, b: plain(x, w, b).sum(), x=x, w=w, b=b, y=y
    )
    x, w, b = (torch.tensor([v], requires_grad=True) for v in (0.0, 2.0, 1.0))
    s = torch.sigmoid(x)
    p = s * w
    y = p + b
    by_torch = trace(
        y.sum(),
        caption="plain autograd",
        check=lambda x, w, b: plain(x, w, b).sum(),
        x=x,
        w=w,
        b=b,
        s=s,
        p=p,
        y=y,
    )
    return Outcome(
        {
            "gradients": "equal" if equal else "differ",
            "speed-up over plain autograd": round(best_plain / best_custom, 3),
        },
        (by_hand, by_torch),
    )


def _seconds(function: Callable[..., Tensor], inputs: list[Tensor]) -> float:
    start = time.perf_counter()
    torch.autograd.grad(function(*inputs).sum(), inputs)
    return time.perf_counter() - start


CHAPTER = Chapter(
    "When a backward must be written by hand",
    (rounding, straight_through, broken_by_numpy, mended, not_faster),
)

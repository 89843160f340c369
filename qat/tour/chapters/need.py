"""When a custom backward is needed, and when it is not."""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from qat.gradients import numpy_function, round_ste, round_zero
from qat.tour.expectation import AtMost, Contains
from qat.tour.experiment import Chapter, Measured
from qat.tour.functions import SigmoidAffine
from qat.tour.trace import differentiate, leaf, trace

CHAPTER = Chapter("When a custom backward is needed")
NOT_ON_THE_GRAPH = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"


@CHAPTER.experiment(
    "The true gradient of rounding is zero",
    why="Rounding is flat between its steps. Its gradient is zero, so the layers before it do not learn.",
    expected={"forward": [0.0, 1.0, 1.0], "gradient": [0.0, 0.0, 0.0]},
)
def rounding() -> Measured:
    return differentiate(round_zero, x=leaf(0.2, 0.7, 1.4))


@CHAPTER.experiment(
    "The straight-through estimator lets the gradient pass",
    why="The forward rounds. The backward treats rounding as the identity.",
    expected={"forward": [0.0, 1.0, 1.0], "gradient": [1.0, 1.0, 1.0]},
)
def straight_through() -> Measured:
    why = "On purpose: the forward is a staircase, the gradient is that of the identity."
    return differentiate(round_ste, x=leaf(0.2, 0.7, 1.4), differs=why)


def through_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sqrt(x.detach().numpy()))


@CHAPTER.experiment(
    "NumPy breaks the graph",
    why="Autograd does not see what NumPy computes. A tensor that is made from an array is a new leaf.",
    expected={"requires_grad": False, "grad_fn": None, "backward": NOT_ON_THE_GRAPH},
)
def broken_by_numpy() -> Measured:
    x = leaf(1.0, 2.0)
    y = through_numpy(x)
    graph = trace(y.sum(), x=x, y=y)
    return Measured(
        {"requires_grad": y.requires_grad, "grad_fn": y.grad_fn, "backward": graph.error}, [graph]
    )


@CHAPTER.experiment(
    "numpy_function repairs the graph",
    why="It makes the NumPy call one node of the graph. You write its backward, here g / (2 sqrt(x)).",
    expected={
        "forward": [1.0, 2.0, 3.0],
        "gradient": [1 / 2, 1 / 4, 1 / 6],
        "gradient of torch.sqrt": [1 / 2, 1 / 4, 1 / 6],
        "node": Contains("NumpyNodeBackward"),
    },
)
def repaired() -> Measured:
    square_root = numpy_function(np.sqrt, lambda g, y, x: g / (2 * y))
    x = leaf(1.0, 4.0, 9.0)
    node = type(square_root(x).grad_fn).__name__
    (by_torch,) = torch.autograd.grad(x.sqrt().sum(), x)
    return differentiate(square_root, x=x).plus({"gradient of torch.sqrt": by_torch, "node": node})


@CHAPTER.experiment(
    "sigmoid(x) * w + b is not faster as a Function",
    why="Autograd does this in C++. A backward in Python only adds overhead and room for mistakes.",
    expected={"gradients": "equal", "speed-up over plain autograd": AtMost(1.1)},
)
def not_faster() -> Measured:
    def plain(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.sigmoid(x) * w + b

    def seconds(function: Callable[..., Tensor]) -> float:
        start = time.perf_counter()
        torch.autograd.grad(function(*inputs).sum(), inputs)
        return time.perf_counter() - start

    random = torch.Generator().manual_seed(0)
    inputs = [torch.randn(512, 512, generator=random, requires_grad=True) for _ in range(3)]
    grads = [torch.autograd.grad(f(*inputs).sum(), inputs) for f in (plain, SigmoidAffine.apply)]
    equal = all(torch.allclose(a, b) for a, b in zip(*grads, strict=True))
    # The best of many, in turn: other programs make some of them slower, but none faster.
    pairs = [(seconds(plain), seconds(SigmoidAffine.apply)) for _ in range(30)]
    best_plain, best_custom = map(min, zip(*pairs, strict=True))
    custom = differentiate(SigmoidAffine.apply, caption="custom", x=leaf(0.0), w=leaf(2.0), b=leaf(1.0))
    x, w, b = leaf(0.0), leaf(2.0), leaf(1.0)
    s = torch.sigmoid(x)
    p = s * w
    y = p + b
    by_torch = trace(y.sum(), caption="plain autograd", check=plain, x=x, w=w, b=b, s=s, p=p, y=y)
    values = {"gradients": "equal" if equal else "differ"}
    return Measured(
        values | {"speed-up over plain autograd": round(best_plain / best_custom, 3)},
        [*custom.graphs, by_torch],
    )

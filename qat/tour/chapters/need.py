"""When a custom backward is needed, and when it is not."""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from qat.gradients import numpy_function, round_ste, round_zero
from qat.tour.experiment import Measured
from qat.tour.functions import SigmoidAffine
from qat.tour.trace import differentiate, leaf, trace


def rounding() -> Measured:
    return differentiate(round_zero, x=leaf(0.2, 0.7, 1.4))


def straight_through() -> Measured:
    why = "On purpose: the forward is a staircase, the gradient is that of the identity."
    return differentiate(round_ste, x=leaf(0.2, 0.7, 1.4), differs=why)


def through_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sqrt(x.detach().numpy()))


def broken_by_numpy() -> Measured:
    x = leaf(1.0, 2.0)
    y = through_numpy(x)
    graph = trace(y.sum(), x=x, y=y)
    return {"requires_grad": y.requires_grad, "grad_fn": y.grad_fn, "backward": graph.error}, [graph]


def repaired() -> Measured:
    square_root = numpy_function(np.sqrt, lambda g, y, x: g / (2 * y))
    x = leaf(1.0, 4.0, 9.0)
    node = type(square_root(x).grad_fn).__name__
    (by_torch,) = torch.autograd.grad(x.sqrt().sum(), x)
    values, graphs = differentiate(square_root, x=x)
    return values | {"gradient of torch.sqrt": by_torch, "node": node}, graphs


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
    _, graphs = differentiate(SigmoidAffine.apply, caption="custom", x=leaf(0.0), w=leaf(2.0), b=leaf(1.0))
    x, w, b = leaf(0.0), leaf(2.0), leaf(1.0)
    s = torch.sigmoid(x)
    p = s * w
    y = p + b
    by_torch = trace(y.sum(), caption="plain autograd", check=plain, x=x, w=w, b=b, s=s, p=p, y=y)
    speed_up = round(best_plain / best_custom, 3)
    values = {"gradients": "equal" if equal else "differ", "speed-up over plain autograd": speed_up}
    return values, [*graphs, by_torch]

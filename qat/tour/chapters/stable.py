"""Numbers that stay finite, and gradients that stay small."""

import math

import torch

from qat.gradients import clip_gradient_norm, clip_gradient_value, logsumexp, relu_soft
from qat.tour.experiment import Chapter, Measured
from qat.tour.trace import differentiate, leaf, trace

CHAPTER = Chapter("Stable numbers")


@CHAPTER.experiment(
    "log-sum-exp at 1000",
    why="exp(1000) overflows. Subtract the largest input first: then no exponent is greater than 0.",
    expected={
        "naive": math.inf,
        "naive gradient": "nan",
        "stable": 1000 + math.log(2),
        "stable gradient": [0.5, 0.5],
    },
)
def log_sum_exp() -> Measured:
    x = leaf(1000.0, 1000.0)
    powers = x.exp()
    total = powers.sum()
    naive = total.log()
    overflow = trace(naive, caption="naive", x=x, powers=powers, total=total)
    lost = x.grad is not None and bool(x.grad.isnan().all())
    stable = leaf(1000.0, 1000.0)
    y = logsumexp(stable)
    graph = trace(y, caption="stable", check=lambda x: torch.logsumexp(x, -1), x=stable, y=y)
    return Measured(
        {
            "naive": naive,
            "naive gradient": "nan" if lost else x.grad,
            "stable": y,
            "stable gradient": stable.grad,
        },
        [overflow, graph],
    )


@CHAPTER.experiment(
    "Gradient clipping",
    why="The forward is the identity. The backward limits each element of the gradient, or its norm.",
    expected={"not clipped": [30.0, -40.0], "by value, 1": [1.0, -1.0], "by norm, 1": [0.6, -0.8]},
)
def clipping() -> Measured:
    measured, graphs = {}, []
    slopes = torch.tensor([30.0, -40.0])
    for name, clip in (
        ("not clipped", lambda x: x.view_as(x)),
        ("by value, 1", lambda x: clip_gradient_value(x, 1.0)),
        ("by norm, 1", lambda x: clip_gradient_norm(x, 1.0)),
    ):
        x = leaf(1.0, 2.0)
        y = clip(x)
        differs = "" if name == "not clipped" else "On purpose: the true gradient is larger."
        total, check = (y * slopes).sum(), lambda x: (x * slopes).sum()
        graphs.append(trace(total, caption=name, check=check, differs=differs, x=x, y=y))
        measured[name] = x.grad
    return Measured(measured, graphs)


@CHAPTER.experiment(
    "A smooth gradient for the kink of ReLU",
    why="The backward uses the gradient of softplus in place of a step, so negative inputs learn too.",
    expected={
        "forward": [0.0, 0.0, 2.0],
        "gradient of relu": [0.0, 0.0, 1.0],
        "gradient": [1 / (1 + math.exp(2)), 0.5, 1 / (1 + math.exp(-2))],
    },
)
def smooth_relu() -> Measured:
    x = leaf(-2.0, 0.0, 2.0)
    (hard,) = torch.autograd.grad(torch.relu(x).sum(), x)
    why = "On purpose: the forward is ReLU, the gradient is that of softplus."
    return differentiate(relu_soft, differs=why, x=x).plus({"gradient of relu": hard})

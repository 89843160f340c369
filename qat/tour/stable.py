"""Chapter 7: numbers that stay finite, gradients that stay small."""

import math

import torch

from qat.gradients import clip_gradient_norm, clip_gradient_value, logsumexp, relu_soft
from qat.tour.experiment import Chapter, Outcome, experiment
from qat.tour.trace import trace


@experiment(
    "log-sum-exp at 1000",
    why="exp(1000) overflows; less the largest input, no exponent exceeds 0, and the sum is the same.",
    expected={
        "naive": math.inf,
        "naive gradient": "nan",
        "stable": 1000 + math.log(2),
        "stable gradient": [0.5, 0.5],
    },
)
def log_sum_exp() -> Outcome:
    x = torch.tensor([1000.0, 1000.0], requires_grad=True)
    powers = x.exp()
    total = powers.sum()
    naive = total.log()
    overflow = trace(naive, caption="naive", x=x, powers=powers, total=total)
    grads, x.grad = x.grad, None
    y = logsumexp(x)
    graph = trace(y, caption="stable", check=lambda x: torch.logsumexp(x, -1), x=x, y=y)
    gone = grads is not None and bool(grads.isnan().all())
    return Outcome(
        {
            "naive": naive,
            "naive gradient": "nan" if gone else grads,
            "stable": y,
            "stable gradient": x.grad,
        },
        (overflow, graph),
    )


@experiment(
    "Gradient clipping",
    why="An identity forward; backward bounds each element, or the length of the whole at equal direction.",
    expected={
        "not clipped": [30.0, -40.0],
        "by value, 1": [1.0, -1.0],
        "by norm, 1": [0.6, -0.8],
    },
)
def clipping() -> Outcome:
    measured, graphs = {}, []
    slopes = torch.tensor([30.0, -40.0])
    for name, clip in (
        ("not clipped", lambda x: x.view_as(x)),
        ("by value, 1", lambda x: clip_gradient_value(x, 1.0)),
        ("by norm, 1", lambda x: clip_gradient_norm(x, 1.0)),
    ):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        differs = "" if name == "not clipped" else "On purpose: the true gradient is the long one."
        y = clip(x)
        graphs.append(
            trace(
                (y * slopes).sum(),
                caption=name,
                check=lambda x: (x * slopes).sum(),
                differs=differs,
                x=x,
                y=y,
            )
        )
        measured[name] = x.grad
    return Outcome(measured, tuple(graphs))


@experiment(
    "A smooth gradient for the kink of ReLU",
    why="The gradient of softplus instead of a step: what is negative still learns.",
    expected={
        "forward": [0.0, 0.0, 2.0],
        "gradient of relu": [0.0, 0.0, 1.0],
        "gradient": [1 / (1 + math.exp(2)), 0.5, 1 / (1 + math.exp(-2))],
    },
)
def smooth_relu() -> Outcome:
    x = torch.tensor([-2.0, 0.0, 2.0], requires_grad=True)
    torch.relu(x).sum().backward()
    hard, x.grad = x.grad, None
    y = relu_soft(x)
    graph = trace(
        y.sum(),
        check=lambda x: torch.relu(x).sum(),
        differs="On purpose: the forward is ReLU, the gradient that of softplus.",
        x=x,
        y=y,
    )
    return Outcome({"forward": y, "gradient of relu": hard, "gradient": x.grad}, (graph,))


CHAPTER = Chapter("Stable numbers", (log_sum_exp, clipping, smooth_relu))

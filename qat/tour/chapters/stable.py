"""Numbers that stay finite, and gradients that stay small."""

import torch

from qat.gradients import clip_gradient_norm, clip_gradient_value, logsumexp, relu_soft
from qat.tour.experiment import Measured
from qat.tour.trace import differentiate, leaf, trace


def log_sum_exp() -> Measured:
    x = leaf(1000.0, 1000.0)
    powers = x.exp()
    total = powers.sum()
    naive = total.log()
    overflow = trace(naive, caption="naive", x=x, powers=powers, total=total)
    nan = "nan" if x.grad is not None and x.grad.isnan().all() else x.grad
    stable = leaf(1000.0, 1000.0)
    y = logsumexp(stable)
    graph = trace(y, caption="stable", check=lambda x: torch.logsumexp(x, -1), x=stable, y=y)
    values = {"naive": naive, "naive gradient": nan, "stable": y, "stable gradient": stable.grad}
    return values, [overflow, graph]


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
    return measured, graphs


def smooth_relu() -> Measured:
    x = leaf(-2.0, 0.0, 2.0)
    (hard,) = torch.autograd.grad(torch.relu(x).sum(), x)
    why = "On purpose: the forward is ReLU, the gradient is that of softplus."
    values, graphs = differentiate(relu_soft, differs=why, x=x)
    return values | {"gradient of relu": hard}, graphs

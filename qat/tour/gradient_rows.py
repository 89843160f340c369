"""Every function of the package that has a gradient: its formulas, and how it is checked."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from torch import Tensor, nn

import qat.gradients as gradients
from qat.gradients import Verdict, check_gradient, refuse_second_derivative
from qat.losses import cross_entropy, distillation_loss, huber_loss
from qat.memory import recompute
from qat.quantizers import DorefaScale, IntGrid, LearnedScale, ObservedScale, PactScale, Quantizer

# No element is an integer, lies halfway between two, or is a bound of a function in the table.
X = torch.linspace(-2.3, 2.4, 12, dtype=torch.float64).reshape(4, 3)
Y = X.flip(0) / 3 - 0.2
BOUNDS = (torch.tensor(-1.25, dtype=torch.float64), torch.tensor(0.75, dtype=torch.float64))
FORMULA = re.compile(r"Forward: `([^`]+)`.*?Gradient[^:`]*: `([^`]+)`", re.DOTALL)


class GradientRow(NamedTuple):
    """A function, the gradient that it states where it is not the derivative, and the inputs of the check."""

    function: Callable[..., Any]
    surrogate: Callable[..., Any] | None = None
    inputs: tuple[Any, ...] = (X,)

    def check(self, name: str) -> Verdict:
        """The verdict of `check_gradient`, under this name."""
        return check_gradient(self.function, *self.inputs, surrogate=self.surrogate, name=name)


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return refuse_second_derivative(3 * g * x * x, name="x^3")


def _soft_staircase(g: Tensor, x: Tensor) -> Tensor:
    r = x - x.floor() - 0.5
    return g * 2.2 / torch.cosh(2.2 * r) ** 2 / (2 * np.tanh(1.1))


def _dorefa(g: Tensor, x: Tensor) -> Tensor:
    y = x.tanh()
    largest = y.abs().max()
    own_share = (y.abs() == largest) * y.sign() * (g * y).sum() / largest**2  # the maximum depends on x too
    return (1 - y * y) * (g / largest - own_share)


QUANTIZER = Quantizer(IntGrid(3), ObservedScale(3, "ema"))
QUANTIZER(torch.tensor([1.5]))  # observes: codes -3 .. 3 are the values -1.5 .. 1.5
QUANTIZER.eval()
PASSED = Quantizer(IntGrid(3), QUANTIZER.scale, outside="passed").eval()
MIDRISE = Quantizer(IntGrid(2, midrise=True), LearnedScale(3)).eval()  # the values are -3, -1, 1 and 3
LEARNED = Quantizer(IntGrid(3), LearnedScale(3)).eval()  # codes -3 .. 3 are the values
PACT = Quantizer(IntGrid(3, signed=False), PactScale(7)).eval()  # the clip is 1
DOREFA = Quantizer(IntGrid(3), DorefaScale(3)).eval()
SINE = gradients.numpy_function(np.sin, lambda g, y, x: g * np.cos(x))

# Where a function has several rows, a name has a comma and what is special about the row.
ROWS: dict[str, GradientRow] = {
    "round_zero": GradientRow(gradients.round_zero),
    "round_ste": GradientRow(gradients.round_ste, lambda g, x: g),
    "round_ewgs": GradientRow(gradients.round_ewgs, lambda g, x: g + 1e-3 * g.abs() * (x - x.round())),
    "round_soft": GradientRow(gradients.round_soft, _soft_staircase),
    "round_stochastic": GradientRow(gradients.round_stochastic, lambda g, x: g),
    "sign_ste": GradientRow(gradients.sign_ste, lambda g, x: g * (x.abs() <= 1)),
    "one_hot_argmax_ste": GradientRow(gradients.one_hot_argmax_ste, lambda g, x: g),
    "straight_through": GradientRow(lambda x: gradients.straight_through(x, torch.floor), lambda g, x: g),
    "clamp": GradientRow(lambda x: gradients.clamp(x, -1.25, 0.75)),
    "clamp, tensors": GradientRow(gradients.clamp, inputs=(X, *BOUNDS)),
    "clamp_ste": GradientRow(lambda x: gradients.clamp_ste(x, -1.25, 0.75), lambda g, x: g),
    "clamp_fading": GradientRow(
        lambda x: gradients.clamp_fading(x, -1.25, 0.75),
        lambda g, x: g * torch.exp(-(x - x.clamp(-1.25, 0.75)).abs()),
    ),
    "stop_gradient": GradientRow(gradients.stop_gradient, lambda g, x: torch.zeros_like(g)),
    "scale_gradient": GradientRow(lambda x: gradients.scale_gradient(x, -0.3), lambda g, x: -0.3 * g),
    "clip_gradient_value": GradientRow(
        lambda x: gradients.clip_gradient_value(x, 0.8), lambda g, x: g.clamp(-0.8, 0.8)
    ),
    "clip_gradient_norm": GradientRow(
        lambda x: gradients.clip_gradient_norm(x, 1.0), lambda g, x: g / g.norm().clamp(min=1)
    ),
    "refuse_second_derivative": GradientRow(_Cube.apply),
    "logsumexp": GradientRow(gradients.logsumexp),
    "relu_soft": GradientRow(gradients.relu_soft, lambda g, x: g * torch.sigmoid(x)),
    "numpy_function": GradientRow(SINE),
    "recompute": GradientRow(lambda x: recompute(nn.Tanh(), x)),
    "Quantizer": GradientRow(QUANTIZER, lambda g, x: g * ((x / 0.5).round().abs() <= 3)),
    "Quantizer, passed outside": GradientRow(PASSED, lambda g, x: g),
    "Quantizer, midrise": GradientRow(MIDRISE, lambda g, x: g * (x.abs() <= 4)),
    "Quantizer, learned scale": GradientRow(LEARNED, lambda g, x: g * (x.abs() <= 3)),
    "Quantizer, PACT": GradientRow(PACT, lambda g, x: g * ((x >= 0) & (x < 1))),
    "Quantizer, DoReFa": GradientRow(DOREFA, _dorefa),
    "huber_loss": GradientRow(huber_loss, inputs=(X, Y)),
    "cross_entropy": GradientRow(lambda x: cross_entropy(x, torch.tensor([0, 2, 1, 1]), label_smoothing=0.1)),
    "distillation_loss": GradientRow(lambda x: distillation_loss(x, Y, "kl", temperature=2.0)),
}


def _formulas() -> dict[str, list[str]]:
    """Of each row the forward and the gradient: from the YAML file, or from the function's docstring."""
    written = yaml.safe_load((Path(__file__).parent / "gradient_formulas.yaml").read_text(encoding="utf-8"))
    stated = {name: FORMULA.search(getattr(gradients, name, None).__doc__ or "") for name in ROWS}
    found = {name: [" ".join(formula.split()) for formula in m.groups()] for name, m in stated.items() if m}
    return {name: (found | written)[name] for name in ROWS if name in found or name in written}


FORMULAS = _formulas()

"""Every function of the package that has a gradient: its formulas, and inputs to check them with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
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


@dataclass(frozen=True)
class GradientRow:
    """A function and its formulas.

    Attributes:
        function: the function to check.
        forward: its value, as a short formula.
        gradient: the gradient of the first input, as a short formula.
        surrogate: the gradient in torch operations, where it is not the derivative (see `check_gradient`).
        inputs: the inputs of the check.
    """

    function: Callable[..., Any]
    forward: str
    gradient: str
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


QUANTIZER = Quantizer(IntGrid(3), ObservedScale(3, "ema"))
QUANTIZER(torch.tensor([1.5]))  # observes: codes -3 .. 3 are the values -1.5 .. 1.5
QUANTIZER.eval()
LEARNED = Quantizer(IntGrid(3), LearnedScale(3)).eval()  # codes -3 .. 3 are the values
PACT = Quantizer(IntGrid(3, signed=False), PactScale(7)).eval()  # the clip is 1
DOREFA = Quantizer(IntGrid(3), DorefaScale(3)).eval()


def _dorefa(g: Tensor, x: Tensor) -> Tensor:
    y = x.tanh()
    largest = y.abs().max()
    own_share = (y.abs() == largest) * y.sign() * (g * y).sum() / largest**2  # the maximum depends on x too
    return (1 - y * y) * (g / largest - own_share)


# Where a function has several rows, a name has a comma and what is special about the row.
ROWS: dict[str, GradientRow] = {
    "round_zero": GradientRow(gradients.round_zero, "round(x)", "0"),
    "round_ste": GradientRow(gradients.round_ste, "round(x)", "g", lambda g, x: g),
    "round_ewgs": GradientRow(
        gradients.round_ewgs,
        "round(x)",
        "g (1 + d sign(g) (x - round(x)))",
        lambda g, x: g + 1e-3 * g.abs() * (x - x.round()),
    ),
    "round_soft": GradientRow(
        gradients.round_soft, "round(x)", "g k (1 - tanh^2(k r)) / (2 tanh(k/2))", _soft_staircase
    ),
    "round_stochastic": GradientRow(gradients.round_stochastic, "floor(x + u)", "g", lambda g, x: g),
    "sign_ste": GradientRow(
        gradients.sign_ste,
        "+1 if x >= 0 else -1",
        "g where |x| <= 1, else 0",
        lambda g, x: g * (x.abs() <= 1),
    ),
    "one_hot_argmax_ste": GradientRow(
        gradients.one_hot_argmax_ste, "one_hot(argmax(x))", "g", lambda g, x: g
    ),
    "clamp": GradientRow(
        lambda x: gradients.clamp(x, -1.25, 0.75),
        "min(max(x, low), high)",
        "g where low <= x <= high, else 0",
    ),
    "clamp, tensors": GradientRow(
        gradients.clamp,
        "min(max(x, low), high)",
        "g inside, else 0; bounds: sum of g outside",
        inputs=(X, *BOUNDS),
    ),
    "stop_gradient": GradientRow(gradients.stop_gradient, "x", "none", lambda g, x: torch.zeros_like(g)),
    "scale_gradient": GradientRow(
        lambda x: gradients.scale_gradient(x, -0.3), "x", "factor g", lambda g, x: -0.3 * g
    ),
    "clip_gradient_value": GradientRow(
        lambda x: gradients.clip_gradient_value(x, 0.8),
        "x",
        "min(max(g, -limit), limit)",
        lambda g, x: g.clamp(-0.8, 0.8),
    ),
    "clip_gradient_norm": GradientRow(
        lambda x: gradients.clip_gradient_norm(x, 1.0),
        "x",
        "g min(1, limit / |g|)",
        lambda g, x: g / g.norm().clamp(min=1),
    ),
    "refuse_second_derivative": GradientRow(_Cube.apply, "x^3 (in a Function)", "3 g x^2"),
    "logsumexp": GradientRow(gradients.logsumexp, "log(sum(exp(x)))", "g softmax(x)"),
    "relu_soft": GradientRow(
        gradients.relu_soft, "max(x, 0)", "g sigmoid(x)", lambda g, x: g * torch.sigmoid(x)
    ),
    "numpy_function": GradientRow(
        gradients.numpy_function(np.sin, lambda g, y, x: g * np.cos(x)), "np.sin(x)", "g np.cos(x)"
    ),
    "recompute": GradientRow(lambda x: recompute(nn.Tanh(), x), "tanh(x)", "g (1 - tanh^2(x)), recomputed"),
    "Quantizer": GradientRow(
        QUANTIZER,
        "clamp(round(x / s)) s",
        "g where low <= round(x / s) <= high",
        lambda g, x: g * ((x / 0.5).round().abs() <= 3),
    ),
    "Quantizer, learned scale": GradientRow(
        LEARNED,
        "round(clamp(x / s)) s",
        "g where low <= x / s <= high; s: sum g (code - x / s)",
        lambda g, x: g * (x.abs() <= 3),
    ),
    "Quantizer, PACT": GradientRow(
        PACT,
        "round(clamp(x, 0, clip) / s) s",
        "g where 0 <= x < clip; clip: sum g where x >= clip",
        lambda g, x: g * ((x >= 0) & (x < 1)),
    ),
    "Quantizer, DoReFa": GradientRow(
        DOREFA, "round(tanh(x) / max|tanh(x)| / s) s", "the gradient of tanh(x) / max|tanh(x)|", _dorefa
    ),
    "huber_loss": GradientRow(huber_loss, "e^2/2 or d(|e| - d/2)", "g e or g d sign(e)", inputs=(X, Y)),
    "cross_entropy": GradientRow(
        lambda x: cross_entropy(x, torch.tensor([0, 2, 1, 1]), label_smoothing=0.1),
        "logsumexp(x) - x[target]",
        "g (softmax(x) - target) / N",
    ),
    "distillation_loss": GradientRow(
        lambda x: distillation_loss(x, Y, "kl", temperature=2.0),
        "T^2 KL(teacher || student)",
        "g T (student - teacher) / N",
    ),
}

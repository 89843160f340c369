"""How a gradient is checked."""

from functools import partial

import torch
from torch.autograd import gradcheck

from qat.gradients.check.function_at_point import central_differences
from qat.losses import huber_loss
from qat.tour.errors import error_of, warning_and_error_of
from qat.tour.experiment import Measured
from qat.tour.functions import Square, SquareWrong
from qat.tour.trace import differentiate, leaf


def wrong_square() -> Measured:
    x = leaf(1.0, 2.0, dtype=torch.float64)
    right = gradcheck(Square.apply, (x,))
    wrong = error_of(lambda: gradcheck(SquareWrong.apply, (x,)))
    why = "The gradient is wrong: its factor 2 is missing."
    measured, graphs = differentiate(SquareWrong.apply, differs=why, x=x)
    (numerical,) = central_differences(lambda xs: SquareWrong.apply(*xs).sum(), [x], [0])
    ratio = numerical / measured["gradient"]
    return {"right Square": right, "wrong Square": wrong, "numerical / analytical": ratio}, graphs


def single_precision() -> Measured:
    x = leaf(1.49, 0.63, -0.81, 2.3)
    not_double = "Input #0 requires gradient and is not a double"
    warning, error = warning_and_error_of(lambda: gradcheck(Square.apply, (x,)), not_double)
    right = gradcheck(Square.apply, (x.detach().double().requires_grad_(),))
    _, graphs = differentiate(Square.apply, x=x)
    return {"float64": right, "float32, warning": warning, "float32": error}, graphs


def huber() -> Measured:
    loss = partial(huber_loss, delta=1.0, reduction="none")
    x = leaf(0.5, 1.2, -0.8, dtype=torch.float64)
    passed = gradcheck(loss, (x, leaf(0.2, -0.4, 0.1, dtype=torch.float64)))
    _, graphs = differentiate(lambda x: loss(x, torch.zeros_like(x)), x=x)
    return {"gradcheck": passed, "gradient": x.grad}, graphs

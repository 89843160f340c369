"""How a gradient is checked."""

from functools import partial

import torch
from torch.autograd import gradcheck

from qat.losses import huber_loss
from qat.tour.differences import central_differences
from qat.tour.errors import collected_warnings, error_of
from qat.tour.expectation import Contains
from qat.tour.experiment import Chapter, Measured
from qat.tour.functions import Square, SquareWrong
from qat.tour.trace import differentiate, leaf

CHAPTER = Chapter("How a gradient is checked")


@CHAPTER.experiment(
    "gradcheck catches the wrong Square",
    why="A wrong backward raises no error. The ratio of the Jacobians shows the mistake: a factor of 2.",
    expected={
        "right Square": True,
        "wrong Square": Contains("GradcheckError: Jacobian mismatch for output 0 with respect to input 0"),
        "numerical / analytical": [2.0, 2.0],
    },
)
def wrong_square() -> Measured:
    x = leaf(1.0, 2.0, dtype=torch.float64)
    right = gradcheck(Square.apply, (x,))
    message = error_of(lambda: gradcheck(SquareWrong.apply, (x,)))
    why = "The gradient is wrong: its factor 2 is missing."
    measured = differentiate(SquareWrong.apply, differs=why, x=x)
    numerical = central_differences(SquareWrong.apply, {"x": x}, torch.ones(2))["x"]
    values = {"right Square": right, "wrong Square": message}
    values["numerical / analytical"] = numerical / measured.values["gradient"]
    return Measured(values, measured.graphs)


@CHAPTER.experiment(
    "gradcheck in float32 rejects a right Square",
    why="In float32, the difference of nearly equal numbers has too few digits. Check the dtype first.",
    expected={
        "float64": True,
        "float32, warning": Contains("is not a double precision floating point"),
        "float32": Contains("GradcheckError: Jacobian mismatch"),
    },
)
def single_precision() -> Measured:
    x = leaf(1.49, 0.63, -0.81, 2.3)
    with collected_warnings(UserWarning, "Input #0 requires gradient and is not a double") as warned:
        failed = error_of(lambda: gradcheck(Square.apply, (x,)))
    right = gradcheck(Square.apply, (x.detach().double().requires_grad_(),))
    values = {"float64": right, "float32, warning": "; ".join(warned), "float32": failed}
    return Measured(values, differentiate(Square.apply, x=x).graphs)


@CHAPTER.experiment(
    "gradcheck passes the Huber loss",
    why="It compares the gradients of both tensors, input and target. The number delta has no gradient.",
    expected={"gradcheck": True, "gradient": [0.5, 1.0, -0.8]},
)
def huber() -> Measured:
    loss = partial(huber_loss, delta=1.0, reduction="none")
    x = leaf(0.5, 1.2, -0.8, dtype=torch.float64)
    passed = gradcheck(loss, (x, leaf(0.2, -0.4, 0.1, dtype=torch.float64)))
    graphs = differentiate(lambda x: loss(x, torch.zeros_like(x)), x=x).graphs
    return Measured({"gradcheck": passed, "gradient": x.grad}, graphs)

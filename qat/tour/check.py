"""Chapter 5: a gradient is checked, not looked at."""

import re
from functools import partial

import torch
from torch.autograd import gradcheck

from qat.losses import huber_loss
from qat.tour.expected import Says
from qat.tour.experiment import Chapter, Outcome, experiment, heard, raised
from qat.tour.functions import Square, SquareWrong
from qat.tour.trace import trace


@experiment(
    "gradcheck catches the wrong Square",
    why="A wrong backward raises nothing, it trains a little worse; the ratio says what: a factor 2.",
    expected={
        "right Square": True,
        "wrong Square": Says("GradcheckError: Jacobian mismatch for output 0 with respect to input 0"),
        "numerical / analytical": [2.0, 2.0],
    },
)
def wrong_square() -> Outcome:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    right = gradcheck(Square.apply, (x,))
    message = raised(lambda: gradcheck(SquareWrong.apply, (x,)))
    y = SquareWrong.apply(x)
    graph = trace(
        y.sum(),
        check=lambda x: (x * x).sum(),
        differs="The gradient is wrong: its factor 2 is missing.",
        x=x,
        y=y,
    )
    return Outcome(
        {"right Square": right, "wrong Square": message, "numerical / analytical": _ratios(message)}, (graph,)
    )


def _ratios(message: str) -> list[float]:
    """The diagonal of the numerical Jacobian by that of the analytical one, from gradcheck's message."""
    diagonals = []
    for which in ("numerical", "analytical"):
        found = re.search(which + r":tensor\(\[\[(\S+), \S+\], \[\S+ (\S+)\]\]", message)
        assert found, message
        diagonals.append([float(text) for text in found.groups()])
    return [round(a / b, 4) for a, b in zip(*diagonals, strict=True)]


@experiment(
    "gradcheck in float32 fails a right Square",
    why="The difference of two near numbers has no digits left in float32: check the dtype before the code.",
    expected={
        "float64": True,
        "float32, warning": Says("is not a double precision floating point"),
        "float32": Says("GradcheckError: Jacobian mismatch"),
    },
)
def single_precision() -> Outcome:
    values = [1.49, 0.63, -0.81, 2.3]
    x = torch.tensor(values, requires_grad=True)
    with heard(UserWarning, "Input #0 requires gradient and is not a double") as warned:
        failed = raised(lambda: gradcheck(Square.apply, (x,)))
    right = gradcheck(Square.apply, (x.detach().double().requires_grad_(),))
    y = Square.apply(x)
    graph = trace(y.sum(), check=lambda x: (x * x).sum(), x=x, y=y)
    return Outcome({"float64": right, "float32, warning": "; ".join(warned), "float32": failed}, (graph,))


@experiment(
    "gradcheck passes the Huber loss",
    why="A Function of two inputs and a number; both gradients are compared, the number's is None.",
    expected={"gradcheck": True, "gradient": [0.5, 1.0, -0.8]},
)
def huber() -> Outcome:
    x = torch.tensor([0.5, 1.2, -0.8], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0.2, -0.4, 0.1], dtype=torch.float64, requires_grad=True)
    passed = gradcheck(partial(huber_loss, delta=1.0, reduction="none"), (x, target))
    zero = torch.zeros_like(x)
    y = huber_loss(x, zero, 1.0, "none")
    graph = trace(y.sum(), check=lambda x: huber_loss(x, zero, 1.0, "sum"), x=x, y=y)
    return Outcome({"gradcheck": passed, "gradient": x.grad}, (graph,))


CHAPTER = Chapter("A gradient is checked", (wrong_square, single_precision, huber))

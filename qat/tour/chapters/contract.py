"""What a Function must do."""

import torch

from qat.tour.errors import collected_warnings, error_of
from qat.tour.expectation import Contains
from qat.tour.experiment import Chapter, Measured
from qat.tour.functions import Clip, Product, Square, TimesConstant, TimesConstantTooFew
from qat.tour.trace import differentiate, leaf, trace

CHAPTER = Chapter("The contract of a Function")


@CHAPTER.experiment(
    "The smallest Function: Square",
    why="backward gets the gradient g of the output and returns that of the input, 2 x g.",
    expected={
        "forward": [1.0, 4.0, 9.0],
        "gradient": [2.0, 4.0, 6.0],
        "gradient of x * x": [2.0, 4.0, 6.0],
        "node": "SquareBackward",
    },
)
def square() -> Measured:
    x = leaf(1.0, 2.0, 3.0)
    node = type(Square.apply(x).grad_fn).__name__
    (plain,) = torch.autograd.grad((x * x).sum(), x)
    return differentiate(Square.apply, x=x).plus({"gradient of x * x": plain, "node": node})


@CHAPTER.experiment(
    "Square()(x): a misleading error",
    why="The error complains that forward is not static. The mistake is the instance: write Square.apply(x).",
    expected={
        "warning": Contains("should not be instantiated"),
        "error": Contains(
            "RuntimeError: Legacy autograd function with non-static forward method is deprecated."
        ),
        "Square.apply(x), gradient": [2.0, 4.0],
    },
)
def instance() -> Measured:
    x = leaf(1.0, 2.0)
    with collected_warnings(DeprecationWarning, ".* should not be instantiated") as warned:
        error = error_of(lambda: Square()(x))
    graphs = differentiate(Square.apply, caption="the right call", x=x).graphs
    values = {"warning": "; ".join(warned), "error": error, "Square.apply(x), gradient": x.grad}
    return Measured(values, graphs)


@CHAPTER.experiment(
    "One gradient too few",
    why="backward must return one gradient for each argument of forward except ctx.",
    expected={"error": Contains("returned an incorrect number of gradients (expected 2, got 1)")},
)
def too_few() -> Measured:
    return differentiate(lambda x: TimesConstantTooFew.apply(x, 3.0), x=leaf(1.0, 2.0))


@CHAPTER.experiment(
    "None is the gradient of an argument that has none",
    why="Numbers, shapes and flags have no gradient. backward returns None in their place.",
    expected={"forward": [3.0, 6.0], "gradient": [3.0, 3.0]},
)
def none() -> Measured:
    return differentiate(lambda x: TimesConstant.apply(x, 3.0), x=leaf(1.0, 2.0))


@CHAPTER.experiment(
    "needs_input_grad says which gradients are needed",
    why="It has one bool for each argument of forward. In clip(x, low, high), only x needs a gradient.",
    expected={
        "forward": [-1.0, 0.5, 1.0],
        "gradient": [0.0, 1.0, 0.0],
        "needs_input_grad": (True, False, False),
    },
)
def needed() -> Measured:
    measured = differentiate(lambda x: Clip.apply(x, -1.0, 1.0), x=leaf(-2.0, 0.5, 2.0))
    return measured.plus({"needs_input_grad": Clip.needed})


@CHAPTER.experiment(
    "The gradient of a frozen input costs nothing",
    why="backward can skip the gradients that are not needed. So training costs less with a frozen backbone.",
    expected={"products, both learn": 2, "products, w frozen": 1, "gradient of x": [5.0, 7.0]},
)
def frozen() -> Measured:
    both = differentiate(Product.apply, caption="both learn", x=leaf(1.0, 2.0), w=leaf(5.0, 7.0))
    values = {"products, both learn": Product.computed}
    one = differentiate(Product.apply, caption="w frozen", x=leaf(1.0, 2.0), w=torch.tensor([5.0, 7.0]))
    values |= {"products, w frozen": Product.computed, "gradient of x": one.values["gradient"]}
    return Measured(values, [*both.graphs, *one.graphs])


@CHAPTER.experiment(
    "A backward computes a vector-Jacobian product",
    why="It receives a vector v and returns v J. It never builds the Jacobian J, here a 3 x 3 matrix.",
    expected={
        "Jacobian": [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]],
        "v times Jacobian": [2.0, 40.0, 600.0],
        "backward(v)": [2.0, 40.0, 600.0],
    },
)
def vector_jacobian() -> Measured:
    x, v = leaf(1.0, 2.0, 3.0), torch.tensor([1.0, 10.0, 100.0])
    y = Square.apply(x)
    rows = [torch.autograd.grad(y, x, row, retain_graph=True)[0] for row in torch.eye(3)]
    jacobian = torch.stack(rows)
    graph = trace(y, v, check=Square.apply, x=x, y=y)
    return Measured({"Jacobian": jacobian, "v times Jacobian": v @ jacobian, "backward(v)": x.grad}, [graph])

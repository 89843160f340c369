"""What a Function must do."""

import torch

from qat.tour.errors import warning_and_error_of
from qat.tour.experiment import Measured
from qat.tour.functions import Clip, Product, Square, TimesConstant, TimesConstantTooFew
from qat.tour.trace import differentiate, leaf, trace


def square() -> Measured:
    x = leaf(1.0, 2.0, 3.0)
    node = type(Square.apply(x).grad_fn).__name__
    (plain,) = torch.autograd.grad((x * x).sum(), x)
    values, graphs = differentiate(Square.apply, x=x)
    return values | {"gradient of x * x": plain, "node": node}, graphs


def instance() -> Measured:
    x = leaf(1.0, 2.0)
    warning, error = warning_and_error_of(lambda: Square()(x), ".* should not be instantiated")
    _, graphs = differentiate(Square.apply, caption="the right call", x=x)
    return {"warning": warning, "error": error, "Square.apply(x), gradient": x.grad}, graphs


def too_few() -> Measured:
    return differentiate(lambda x: TimesConstantTooFew.apply(x, 3.0), x=leaf(1.0, 2.0))


def none() -> Measured:
    return differentiate(lambda x: TimesConstant.apply(x, 3.0), x=leaf(1.0, 2.0))


def needed() -> Measured:
    values, graphs = differentiate(lambda x: Clip.apply(x, -1.0, 1.0), x=leaf(-2.0, 0.5, 2.0))
    return values | {"needs_input_grad": str(Clip.needed)}, graphs


def frozen() -> Measured:
    _, both = differentiate(Product.apply, caption="both learn", x=leaf(1.0, 2.0), w=leaf(5.0, 7.0))
    values = {"products, both learn": Product.computed}
    x, w = leaf(1.0, 2.0), torch.tensor([5.0, 7.0])
    _, one = differentiate(Product.apply, caption="w frozen", x=x, w=w)
    return values | {"products, w frozen": Product.computed, "gradient of x": x.grad}, [*both, *one]


def vector_jacobian() -> Measured:
    x, v = leaf(1.0, 2.0, 3.0), torch.tensor([1.0, 10.0, 100.0])
    y = Square.apply(x)
    jacobian = torch.stack([torch.autograd.grad(y, x, row, retain_graph=True)[0] for row in torch.eye(3)])
    graph = trace(y, v, check=Square.apply, x=x, y=y)
    return {"Jacobian": jacobian, "v times Jacobian": v @ jacobian, "backward(v)": x.grad}, [graph]

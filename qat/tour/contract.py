"""Chapter 2: the contract that a Function signs."""

import torch

from qat.tour.expected import Says
from qat.tour.experiment import Chapter, Outcome, experiment, heard, raised
from qat.tour.functions import Clip, Product, Scale, ScaleShort, Square
from qat.tour.trace import trace


@experiment(
    "The smallest Function: Square",
    why="Its node is named after the class and stands in the graph as torch's own nodes do.",
    expected={
        "gradient": [2.0, 4.0, 6.0],
        "gradient of x * x": [2.0, 4.0, 6.0],
        "node": "SquareBackward",
    },
)
def square() -> Outcome:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = Square.apply(x)
    graph = trace(y.sum(), check=lambda x: (x * x).sum(), x=x, y=y)
    same = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (same * same).sum().backward()
    node = type(y.grad_fn).__name__
    return Outcome({"gradient": x.grad, "gradient of x * x": same.grad, "node": node}, (graph,))


@experiment(
    "Square()(x): the error that points the wrong way",
    why="forward is static; the mistake is the instance. Write Square.apply(x).",
    expected={
        "warning": Says("should not be instantiated"),
        "error": Says("RuntimeError: Legacy autograd function with non-static forward method is deprecated."),
        "Square.apply(x), gradient": [2.0, 4.0],
    },
)
def instance() -> Outcome:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with heard(DeprecationWarning, ".* should not be instantiated") as warned:
        error = raised(lambda: Square()(x))
    y = Square.apply(x)
    graph = trace(y.sum(), caption="the right call", check=lambda x: (x * x).sum(), x=x, y=y)
    return Outcome(
        {"warning": "; ".join(warned), "error": error, "Square.apply(x), gradient": x.grad}, (graph,)
    )


@experiment(
    "One gradient too few",
    why="backward returns one gradient for each argument of forward, ctx not counted.",
    expected={"error": Says("returned an incorrect number of gradients (expected 2, got 1)")},
)
def too_few() -> Outcome:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = ScaleShort.apply(x, 3.0)
    graph = trace(y.sum(), x=x, y=y)
    return Outcome({"error": graph.error}, (graph,))


@experiment(
    "None stands for an argument without a gradient",
    why="Numbers, shapes and switches have none, but keep their place in what backward returns.",
    expected={"forward": [3.0, 6.0], "gradient": [3.0, 3.0]},
)
def none() -> Outcome:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = Scale.apply(x, 3.0)
    graph = trace(y.sum(), check=lambda x: (3 * x).sum(), x=x, y=y)
    return Outcome({"forward": y, "gradient": x.grad}, (graph,))


@experiment(
    "needs_input_grad tells which gradients are wanted",
    why="One truth value for each argument of forward: of clip(x, low, high), x alone.",
    expected={
        "forward": [-1.0, 0.5, 1.0],
        "needs_input_grad": (True, False, False),
        "gradient": [0.0, 1.0, 0.0],
    },
)
def wanted() -> Outcome:
    x = torch.tensor([-2.0, 0.5, 2.0], requires_grad=True)
    y = Clip.apply(x, -1.0, 1.0)
    graph = trace(y.sum(), check=lambda x: x.clamp(-1, 1).sum(), x=x, y=y)
    return Outcome({"forward": y, "needs_input_grad": Clip.wanted, "gradient": x.grad}, (graph,))


@experiment(
    "A frozen input costs nothing",
    why="Where needs_input_grad is False, a backward leaves the product out: a frozen backbone is free.",
    expected={"products, both learn": 2, "products, w frozen": 1, "gradient of x": [5.0, 7.0]},
)
def frozen() -> Outcome:
    x, w = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([5.0, 7.0], requires_grad=True)
    y = Product.apply(x, w)
    both = trace(y.sum(), caption="both learn", check=lambda x, w: (x * w).sum(), x=x, w=w, y=y)
    counts = [Product.computed]
    x, w = x.detach().requires_grad_(), w.detach()
    y = Product.apply(x, w)
    constant = w.double()
    one = trace(y.sum(), caption="w frozen", check=lambda x: (x * constant).sum(), x=x, w=w, y=y)
    counts.append(Product.computed)
    return Outcome(
        {"products, both learn": counts[0], "products, w frozen": counts[1], "gradient of x": x.grad},
        (both, one),
    )


@experiment(
    "A backward is a vector-Jacobian product",
    why="It gets v and returns v J; the matrix J itself, here 3 by 3, is never built.",
    expected={
        "Jacobian": [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]],
        "v times Jacobian": [2.0, 40.0, 600.0],
        "backward(v)": [2.0, 40.0, 600.0],
    },
)
def vector_jacobian() -> Outcome:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    v = torch.tensor([1.0, 10.0, 100.0])
    y = Square.apply(x)
    rows = [torch.autograd.grad(y, x, row, retain_graph=True)[0] for row in torch.eye(3)]
    jacobian = torch.stack(rows)
    graph = trace(y, v, check=lambda x: x * x, x=x, y=y)
    return Outcome({"Jacobian": jacobian, "v times Jacobian": v @ jacobian, "backward(v)": x.grad}, (graph,))


CHAPTER = Chapter(
    "The contract of a Function",
    (square, instance, too_few, none, wanted, frozen, vector_jacobian),
)

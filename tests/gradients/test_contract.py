"""One row for each function of the room: value, gradient, second derivative, dtypes, layouts, compilation.

Adding a function adds a row. Values and gradients are written in NumPy, apart from the package.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from qat import gradients
from qat.gradients import (
    clamp,
    clamp_fading,
    clamp_ste,
    clip_gradient_norm,
    clip_gradient_value,
    logsumexp,
    numpy_function,
    one_hot_argmax_ste,
    refuse_second_derivative,
    relu_soft,
    round_ewgs,
    round_soft,
    round_ste,
    round_stochastic,
    round_zero,
    scale_gradient,
    sign_ste,
    stop_gradient,
    straight_through,
)

Array = Any

# Quarters: exact in every dtype; with ties, whole numbers, both ends of [-1, 1] and 0.
POINTS = (torch.arange(-12, 12, dtype=torch.float64) / 4).reshape(2, 3, 2, 2)
UPSTREAM = (torch.arange(24, dtype=torch.float64) % 5 / 2 - 1).reshape(2, 3, 2, 2)
SMOOTH = POINTS + 0.1  # without any of these
DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


@dataclass(frozen=True)
class Row:
    """What holds for one function.

    Args:
        function: `(x, *more)` -> a tensor.
        value: the same in NumPy.
        gradient: `(g, x, *more)` -> the gradient of each input, in NumPy.
        more: values of further inputs.
        true: whether the gradient is the derivative of the function.
        refuses: the name under which the second derivative is refused.
        saves_input: whether a change of x in place after the forward is an error (x is saved, or the result
            is a view of it); else it changes nothing.
        compiles: False only for the NumPy bridge, since NumPy is no part of a compiled graph.
        dtypes: the supported ones.
        scalars: whether 0-dim tensors make sense.
    """

    function: Callable[..., Tensor]
    value: Callable[..., Array]
    gradient: Callable[..., Array]
    more: tuple[float, ...] = ()
    true: bool = False
    refuses: str = ""
    saves_input: bool = False
    compiles: bool = True
    dtypes: tuple[torch.dtype, ...] = tuple(DTYPES)
    scalars: bool = True

    def inputs(self, x: Tensor) -> list[Tensor]:
        parts = [x, *(torch.tensor(value) for value in self.more)]
        return [part.detach().to(x.dtype).requires_grad_() for part in parts]


def half_even(x: Array) -> Array:
    return np.array([round(v) for v in x.ravel().tolist()], dtype=x.dtype).reshape(x.shape)


def staircase_slope(x: Array) -> Array:
    return 2.2 / np.cosh(2.2 * (x - np.floor(x) - 0.5)) ** 2 / (2 * np.tanh(1.1))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def one_hot(x: Array) -> Array:
    return np.moveaxis(np.eye(3)[x.argmax(1)], -1, 1) if x.size else x


def between_gradient(g: Array, x: Array, low: Array, high: Array) -> Array:
    return g * ((x >= low) & (x <= high)), (g * (x < low)).sum(), (g * (x > high)).sum()


class Cube(torch.autograd.Function):
    """x^3 with a refused second derivative: what refuse_second_derivative is for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return refuse_second_derivative(3 * g.detach() * x.detach() ** 2, g, x, name="Cube")


ROWS = {
    "round_zero": Row(round_zero, half_even, lambda g, x: 0 * g, true=True),
    "round_ste": Row(round_ste, half_even, lambda g, x: g),
    "round_ewgs": Row(
        lambda x: round_ewgs(x, 0.5),
        half_even,
        lambda g, x: g * (1 + 0.5 * np.sign(g) * (x - half_even(x))),
        refuses="round_ewgs",
        saves_input=True,
    ),
    "round_soft": Row(round_soft, half_even, lambda g, x: g * staircase_slope(x), saves_input=True),
    # Here on whole numbers, where nothing is random; test_rounding.py has the statistics.
    "round_stochastic": Row(lambda x: round_stochastic(x * 4), lambda x: x * 4, lambda g, x: 4 * g),
    "sign_ste": Row(sign_ste, lambda x: np.where(x >= 0, 1.0, -1.0), lambda g, x: g * (abs(x) <= 1)),
    "one_hot_argmax_ste": Row(lambda x: one_hot_argmax_ste(x, dim=1), one_hot, lambda g, x: g, scalars=False),
    "straight_through": Row(lambda x: straight_through(x, torch.floor), np.floor, lambda g, x: g),
    "clamp": Row(
        lambda x: clamp(x, -1, 1), lambda x: np.clip(x, -1, 1), lambda g, x: g * (abs(x) <= 1), true=True
    ),
    "clamp_ste": Row(lambda x: clamp_ste(x, -1, 1), lambda x: np.clip(x, -1, 1), lambda g, x: g),
    "clamp_fading": Row(
        lambda x: clamp_fading(x, -1, 1),
        lambda x: np.clip(x, -1, 1),
        lambda g, x: g * np.exp(-abs(x - np.clip(x, -1, 1))),
        saves_input=True,
    ),
    "clamp, tensor bounds": Row(clamp, np.clip, between_gradient, more=(-1.25, 0.75), true=True),
    # The graph ends at stop_gradient; the other term shows that nothing comes through it.
    "stop_gradient": Row(lambda x: x + stop_gradient(x), lambda x: 2 * x, lambda g, x: g),
    "scale_gradient": Row(
        lambda x: scale_gradient(x, -0.5), lambda x: x, lambda g, x: -0.5 * g, saves_input=True
    ),
    "clip_gradient_value": Row(
        lambda x: clip_gradient_value(x, 0.75),
        lambda x: x,
        lambda g, x: np.clip(g, -0.75, 0.75),
        saves_input=True,
    ),
    "clip_gradient_norm": Row(
        lambda x: clip_gradient_norm(x, 0.75),
        lambda x: x,
        lambda g, x: g * min(1.0, 0.75 / max(np.sqrt((g * g).sum()), 1e-9)),
        saves_input=True,
    ),
    "refuse_second_derivative": Row(
        Cube.apply, lambda x: x**3, lambda g, x: 3 * g * x * x, true=True, refuses="Cube", saves_input=True
    ),
    "logsumexp": Row(
        lambda x: logsumexp(x, dim=1, keepdim=True),
        lambda x: np.log(np.exp(x).sum(1, keepdims=True)),
        lambda g, x: g[:, :1] * (softmax(x) if x.size else x),
        true=True,
        saves_input=True,
        scalars=False,
    ),
    "relu_soft": Row(
        relu_soft, lambda x: np.maximum(x, 0), lambda g, x: g / (1 + np.exp(-x)), saves_input=True
    ),
    "numpy_function": Row(
        numpy_function(lambda x: x * x, lambda g, y, x: 2 * g * x),
        lambda x: x * x,
        lambda g, x: 2 * g * x,
        true=True,
        refuses="numpy_function",
        saves_input=True,
        compiles=False,
        dtypes=(torch.float16, torch.float32, torch.float64),
    ),
}
each_row = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())


def run(row: Row, x: Tensor, g: Tensor) -> list[Tensor]:
    """The value and the gradient of every input."""
    torch.manual_seed(0)
    inputs = row.inputs(x)
    y = row.function(*inputs)
    return [y.detach(), *torch.autograd.grad(y, inputs, cut(g, y))]


def cut(g: Tensor, y: Tensor) -> Tensor:
    """The upstream gradient for a smaller output."""
    return g[tuple(map(slice, y.shape))]


def same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-15)


def expected(row: Row, x: Tensor, g: Tensor) -> list[Tensor]:
    arrays = [part.detach().double().numpy() for part in row.inputs(x)]
    found = row.gradient(g.double().numpy(), *arrays)
    parts = (row.value(*arrays), *(found if isinstance(found, tuple) else (found,)))
    return [torch.as_tensor(part).to(x.dtype) for part in parts]


def test_every_public_function_has_a_row() -> None:
    public = {name for name in gradients.__all__ if inspect.isfunction(getattr(gradients, name))}
    assert {name.partition(",")[0] for name in ROWS} == public - {"check_gradient"}


@each_row
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_value_and_gradient(row: Row, dtype: torch.dtype) -> None:
    x, g = POINTS.to(dtype), UPSTREAM.to(dtype)
    if dtype in row.dtypes:
        torch.testing.assert_close(run(row, x, g), expected(row, x, g))
    else:
        with pytest.raises(TypeError, match=str(dtype).removeprefix("torch.")):
            run(row, x, g)


@each_row
def test_empty_and_scalar(row: Row) -> None:
    cases = [torch.zeros(0, 3, 2, 2), *([torch.tensor(0.75)] if row.scalars else [])]
    for x in cases:
        g = torch.full_like(x, 0.5)
        torch.testing.assert_close(run(row, x, g), expected(row, x, g))


@each_row
def test_memory_formats(row: Row) -> None:
    plain = run(row, POINTS, UPSTREAM)
    last = [t.contiguous(memory_format=torch.channels_last) for t in (POINTS, UPSTREAM)]
    in_last = run(row, *last)
    assert all(map(same, plain, in_last))
    for t in in_last[:2] if in_last[0].shape == POINTS.shape else in_last[:1]:
        assert t.is_contiguous(memory_format=torch.channels_last)
    strided = [torch.stack([t.mT, t.mT + 9], -1)[..., 0].mT for t in (POINTS, UPSTREAM)]
    assert all(map(same, plain, run(row, *strided)))
    ones = torch.ones((), dtype=POINTS.dtype).expand_as(POINTS)
    assert all(map(torch.equal, run(row, POINTS, ones.contiguous()), run(row, POINTS, ones)))


@each_row
def test_derivatives(row: Row) -> None:
    def function(*inputs: Tensor) -> Tensor:
        torch.manual_seed(0)
        return row.function(*inputs)

    inputs = row.inputs(SMOOTH)
    if row.true:
        assert gradcheck(function, inputs)
    if not row.refuses:
        # Differentiates the gradient as it is: right for a surrogate too.
        assert gradgradcheck(function, inputs)
        return
    for extra in (0.0, 1.0):  # alone, and in a sum whose other term has a second derivative
        for through in ("grad", "backward"):
            x = SMOOTH.clone().requires_grad_()
            total = (row.function(x) ** 2 + extra * x**3).sum()
            (first,) = torch.autograd.grad(total, x, create_graph=True)
            with pytest.raises(RuntimeError, match=rf"{row.refuses}.* has no second derivative"):
                torch.autograd.grad(first.sum(), x) if through == "grad" else first.square().sum().backward()


def tensors_on_ctx(y: Tensor) -> list[str]:
    nodes, found = [y.grad_fn], []
    while nodes:
        node = nodes.pop()
        if node is not None:
            found += [k for k, v in getattr(node, "__dict__", {}).items() if isinstance(v, Tensor)]
            nodes += [after for after, _ in node.next_functions]
    return found


@each_row
def test_tensors_are_kept_by_save_for_backward_alone(row: Row) -> None:
    x, *more = row.inputs(SMOOTH)
    inner = x * 1
    y = row.function(inner, *more)
    assert tensors_on_ctx(y) == []
    with torch.no_grad():
        inner.mul_(-3)
    if row.saves_input:
        with pytest.raises(RuntimeError, match=r"modified by an inplace operation|is a view"):
            torch.autograd.grad(y, x, cut(UPSTREAM, y))
    else:
        (got,) = torch.autograd.grad(y, x, cut(UPSTREAM, y))
        assert torch.equal(got, run(row, SMOOTH, UPSTREAM)[1])


@each_row
def test_only_wanted_gradients_are_computed(row: Row) -> None:
    inputs = row.inputs(SMOOTH)
    assert not row.function(*(x.detach() for x in inputs)).requires_grad
    for wanted, gradient in enumerate(run(row, SMOOTH, UPSTREAM)[1:]):
        some = [x if i == wanted else x.detach() for i, x in enumerate(inputs)]
        torch.manual_seed(0)
        y = row.function(*some)
        (got,) = torch.autograd.grad(y, inputs[wanted], cut(UPSTREAM, y), retain_graph=True)
        assert torch.equal(got, gradient)
        if len(inputs) > 1:
            returned = y.grad_fn.apply(UPSTREAM)
            shapes = [x.shape if x.requires_grad else None for x in some]
            assert [part if part is None else part.shape for part in returned] == shapes


@each_row
def test_compiled_equals_eager(row: Row) -> None:
    torch.compiler.reset()
    compiled = torch.compile(row.function, fullgraph=row.compiles, backend="aot_eager")
    eager = run(row, POINTS, UPSTREAM)
    inputs = row.inputs(POINTS)
    torch.manual_seed(0)
    y = compiled(*inputs)
    assert all(map(torch.equal, eager, [y.detach(), *torch.autograd.grad(y, inputs, cut(UPSTREAM, y))]))

"""NumPy in the graph: what is refused, and two functions in use."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from qat import Quantization, quantize
from qat.gradients import numpy_function
from qat.losses import huber_loss
from qat.models import SmallCNN
from qat.quantizers import IntGrid, ObservedScale, Quantizer

X = torch.tensor([-1.5, 0.5, 2.0])


def product(x: Any, y: Any) -> Any:
    return x * y


def both(g: Any, output: Any, x: Any, y: Any) -> Any:
    return g * y, g * x


square = numpy_function(np.square, lambda g, y, x: 2 * g * x)


def backward(function: Any, x: Tensor = X) -> None:
    function(x.clone().requires_grad_()).sum().backward()


@pytest.mark.parametrize(
    ("forward", "back", "error", "message"),
    [
        (lambda x: x.astype("f8"), None, TypeError, "forward must return torch.float32 as its input, got"),
        (lambda x: x.tolist(), None, TypeError, "forward must return a NumPy array, got list"),
        (np.sin, lambda g, y, x: g.astype("f8"), TypeError, "backward must return torch.float32"),
        (np.sin, lambda g, y, x: None, TypeError, "backward must return a NumPy array, got NoneType"),
        (np.sin, lambda g, y, x: g[:2], ValueError, r"of the input's shape \(3,\), got \(2,\)"),
        (np.sin, lambda g, y, x: (g, g), ValueError, "one gradient for each of the 1 inputs, got 2"),
        (np.sin, None, RuntimeError, r"numpy_function\(sin\) has no backward, but a gradient was asked for"),
    ],
)
def test_refusals(forward: Any, back: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        backward(numpy_function(forward, back))


def test_inputs_that_numpy_cannot_see() -> None:
    with pytest.raises(TypeError, match=r"NumPy has no bfloat16; convert the input with .float\(\)"):
        square(X.bfloat16())
    with pytest.raises(TypeError, match="input 1 must be a tensor, got float"):
        numpy_function(product)(X, 2.0)
    with pytest.raises(ValueError, match="inputs must lie on one device, got cpu and meta"):
        numpy_function(product)(X, X.to("meta"))


def test_no_backward_is_needed_where_no_gradient_is() -> None:
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = numpy_function(np.sin)(X.clone().requires_grad_())
    assert torch.equal(y, torch.from_numpy(np.sin(X.numpy())))
    assert saved == []


def test_numpy_code_works_on_copies() -> None:
    store = np.zeros(3, dtype=np.float32)

    def in_place(x: Any) -> Any:
        x += 1
        np.copyto(store, x)
        return store  # the same memory at every call

    x = X.clone()
    function = numpy_function(in_place)
    first = function(x)
    function(10 * x)
    assert torch.equal(x, X)
    assert torch.equal(first, X + 1)


def test_integers_take_none_and_another_shape_comes_out() -> None:
    def pick(x: Any, index: Any) -> Any:
        return x[index]

    def unpick(g: Any, y: Any, x: Any, index: Any) -> Any:
        gradient = np.zeros_like(x)
        np.add.at(gradient, index, g)
        return gradient, None

    x = X.clone().requires_grad_()
    y = numpy_function(pick, unpick)(x, torch.tensor([2, 0, 2, 1]))
    assert y.tolist() == [2.0, -1.5, 2.0, 0.5]
    (got,) = torch.autograd.grad(y, x, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert got.tolist() == [2, 4, 4]


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_second_derivatives_are_refused_whichever_input_is_asked(needs: tuple[bool, bool]) -> None:
    inputs = [X.clone().requires_grad_(need) for need in needs]
    wanted = [x for x in inputs if x.requires_grad]
    weight = torch.ones(3, requires_grad=True)  # reaches the second derivative through g alone
    y = numpy_function(product, both)(*inputs) * weight
    firsts = torch.autograd.grad(y.sum() + sum((x**3).sum() for x in wanted), wanted, create_graph=True)
    for target in (*wanted, weight):
        with pytest.raises(RuntimeError, match=r"numpy_function\(product\) has no second derivative"):
            torch.autograd.grad(firsts[0].sum(), target, retain_graph=True)


def test_a_gradient_penalty_is_refused() -> None:
    x = X.clone().requires_grad_()
    loss = square(x).sum() + (x**3).sum()
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        (loss + first.square().sum()).backward()


def test_huber_on_top() -> None:
    x = torch.tensor([-1.5, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    target = torch.zeros_like(x)
    (got,) = torch.autograd.grad(huber_loss(square(x), target), x)
    (right,) = torch.autograd.grad(huber_loss(x * x, target), x)
    assert torch.equal(got, right)
    (first,) = torch.autograd.grad(huber_loss(square(x), target), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"numpy_function\(square\) has no second derivative"):
        torch.autograd.grad(first.sum(), x)


def test_a_chip_that_rounds_half_up_trains() -> None:
    chip = numpy_function(lambda x: np.floor(x + x.dtype.type(0.5)), lambda g, y, x: g)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 8, generator=generator)
    target = x @ torch.randn(8, 1, generator=generator)
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 1)
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "max"), rounding=chip)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(30):
        loss = huber_loss(torch.nn.functional.linear(x, quantizer(layer.weight), layer.bias), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 5
    assert quantizer.eval().codes(torch.tensor([0.5, 1.5, 2.5, 7.0])).tolist() == [1, 2, 3, 7]


def half_up(x: Any) -> Any:
    return np.floor(x + x.dtype.type(0.5))


def straight(g: Any, output: Any, x: Any) -> Any:
    return g


@pytest.mark.parametrize(("forward", "back"), [(half_up, straight), (half_up, None), (np.rint, straight)])
def test_results_are_pickled_and_copied_with_the_models_that_hold_them(
    forward: Any, back: Any, tmp_path: Path
) -> None:
    function = numpy_function(forward, back)
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "ema"), rounding=function)
    model = quantize(SmallCNN(width=4), Quantization(rounding=function), torch.ones(2, 1, 28, 28)).eval()
    images = torch.linspace(0, 1, 1568).reshape(2, 1, 28, 28)
    with torch.no_grad():
        expected = function(X), quantizer(X), model(images)
        for kept in (
            pickle.loads(pickle.dumps((function, quantizer, model))),
            copy.deepcopy((function, quantizer, model)),
        ):
            for part, x, y in zip(kept, (X, X, images), expected, strict=True):
                assert torch.equal(part(x), y)
        torch.save(model, tmp_path / "model.pt")
        assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=False)(images), expected[2])


def test_a_function_that_cannot_be_pickled_is_named_by_pickle() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(square)
    assert copy.deepcopy(square)(X).tolist() == [2.25, 0.25, 4]
    assert repr(square) == "numpy_function(square)"

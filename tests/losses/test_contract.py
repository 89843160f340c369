"""What every loss holds to: dtypes, shapes, layouts, what it keeps, compilation."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from qat.losses import cross_entropy, distillation_loss, huber_loss

TARGET = torch.tensor([0, 2, 1, 1])
ROWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "huber_loss": huber_loss,
    "huber_loss, sum": lambda x, y: huber_loss(x, y, 0.5, "sum"),
    "cross_entropy": lambda x, y: cross_entropy(x, TARGET[: len(x)], 0.1, "sum"),
    "distillation_loss, kl": lambda x, y: distillation_loss(x, y, "kl", 2.0),
    "distillation_loss, huber": lambda x, y: distillation_loss(x, y, "huber"),
}
every_loss = pytest.mark.parametrize("loss", ROWS.values(), ids=ROWS)


def pair(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (2 * torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    return x.to(dtype).requires_grad_(), y.to(dtype)


@every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dtypes(loss: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> None:
    x, y = pair(dtype)
    exact = x.detach().double().requires_grad_()
    value, wanted = loss(x, y), loss(exact, y.double())
    (gradient,), (right,) = torch.autograd.grad(value, x), torch.autograd.grad(wanted, exact)
    assert value.dtype == gradient.dtype == dtype
    # A dozen roundings of the dtype, on numbers up to 10.
    tolerance = {"rtol": 12 * torch.finfo(dtype).eps, "atol": 12 * torch.finfo(dtype).eps}
    torch.testing.assert_close(value.double(), wanted, **tolerance)
    torch.testing.assert_close(gradient.double(), right, **tolerance)


@every_loss
def test_layouts(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, y = pair()
    turned = x.detach().T.contiguous().T.requires_grad_()
    assert not turned.is_contiguous()
    (right,) = torch.autograd.grad(loss(x, y), x)
    for upstream in (torch.tensor(1.0), torch.ones(1).expand(1)[0]):
        (gradient,) = torch.autograd.grad(loss(turned, y.T.contiguous().T), turned, upstream)
        torch.testing.assert_close(gradient, right)  # another order of summation


@every_loss
def test_no_tensor_hangs_on_the_graph(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, y = pair()
    nodes = [loss(x, y).grad_fn]
    seen = 0
    while nodes:
        node = nodes.pop()
        if node is not None:
            seen += 1
            assert not any(isinstance(value, Tensor) for value in getattr(node, "__dict__", {}).values())
            nodes += [parent for parent, _ in node.next_functions]
    assert seen > 1


@every_loss
def test_an_in_place_change_of_the_input_is_never_silently_wrong(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    x, y = pair()
    (right,) = torch.autograd.grad(loss(x, y), x)
    inner = x * 1
    value = loss(inner, y)
    with torch.no_grad():
        inner.mul_(3)
    try:
        (gradient,) = torch.autograd.grad(value, x)
    except RuntimeError:  # the version check: the usual case
        return
    assert torch.equal(gradient, right)


@every_loss
def test_compiled_equals_eager(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    torch.compiler.reset()
    x, y = pair()
    results = []
    for function in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        value = function(x, y)
        results.append((value, *torch.autograd.grad(value, x)))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_empty_and_scalar_inputs() -> None:
    x = torch.zeros(0, 3, requires_grad=True)
    for loss in (huber_loss(x, x.detach(), reduction="sum"), cross_entropy(x, TARGET[:0], reduction="sum")):
        (gradient,) = torch.autograd.grad(loss, x)
        assert loss.item() == 0
        assert gradient.shape == (0, 3)
    assert huber_loss(torch.tensor(1.0), torch.tensor(3.0)).item() == 1.5

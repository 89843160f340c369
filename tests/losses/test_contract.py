"""What every loss holds to: dtypes, shapes, layouts, what it keeps, compilation."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from qat.losses import Term, WeightedLoss, cross_entropy, distillation_loss, huber_loss

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


NAN = float("nan")
TORCH: dict[str, tuple[Any, Any]] = {
    "huber": (huber_loss, F.huber_loss),
    "huber, delta": (lambda x, y: huber_loss(x, y, 0.5), lambda x, y: F.huber_loss(x, y, delta=0.5)),
    "cross_entropy": (lambda x, y: cross_entropy(x, TARGET), lambda x, y: F.cross_entropy(x, TARGET)),
    "cross_entropy, smoothed": (
        lambda x, y: cross_entropy(x, TARGET, 0.1),
        lambda x, y: F.cross_entropy(x, TARGET, label_smoothing=0.1),
    ),
    "kl": (
        distillation_loss,
        lambda x, y: F.kl_div(F.log_softmax(x.float(), 1), F.softmax(y.float(), 1), reduction="batchmean"),
    ),
}
each_pair = pytest.mark.parametrize(("ours", "theirs"), TORCH.values(), ids=TORCH)


@each_pair
@pytest.mark.parametrize("place", [(0, 0), (0, 1), (3, 2)])  # of the target's class, and of others
@pytest.mark.parametrize("bad", [NAN, float("inf"), -float("inf")])
def test_nan_and_infinity_are_those_of_torch(
    ours: Any, theirs: Any, place: tuple[int, int], bad: float
) -> None:
    results = []
    for loss in (ours, theirs):
        x, y = pair()
        with torch.no_grad():
            x[place] = bad
        value = loss(x, y)
        results.append((value, *torch.autograd.grad(value, x)))
    (value, gradient), (wanted, right) = results
    # Where the logit of another class is infinite, torch's value is NaN, too; ours is the limit, infinity.
    assert value.isfinite() == wanted.isfinite()
    if bad != float("inf"):
        torch.testing.assert_close(value, wanted, equal_nan=True)
    assert torch.equal(gradient.isnan(), right.isnan())
    torch.testing.assert_close(gradient, right, equal_nan=True)


@each_pair
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_under_autocast_losses_are_computed_in_float32_as_torch_computes_its_own(
    ours: Any, theirs: Any, low: torch.dtype
) -> None:
    (x, y), results = pair(low), []
    with torch.no_grad():
        x[1, 2], y[1, 2] = 300.0, -300.0  # whose square is no float16
    for loss in (ours, theirs):
        with torch.autocast("cpu", dtype=low):
            value = loss(x, y)
        (gradient,) = torch.autograd.grad(value, x)
        results.append((value, gradient))
    (value, gradient), (wanted, right) = results
    assert value.dtype == wanted.dtype == torch.float32
    assert gradient.dtype == low
    exact = ours(x.float(), y.float())
    assert torch.equal(value, exact)
    torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, right, rtol=torch.finfo(low).eps, atol=1e-7)
    assert torch.equal(gradient == 0, right == 0)  # small ones do not vanish


@each_pair
def test_second_derivatives_under_autocast(ours: Any, theirs: Any) -> None:
    x, y = pair()
    results = []
    for autocast in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            # The sum of x and a number in bfloat16, as a network's last layer gives logits.
            value = ours(x.bfloat16(), y.bfloat16()) if autocast else ours(x, y)
            (first,) = torch.autograd.grad(value, x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        results.append(second)
    torch.testing.assert_close(results[1], results[0], rtol=0.05, atol=0.01)


def test_sums_under_autocast_are_those_of_float32() -> None:
    x, y = pair(torch.bfloat16)
    terms = {
        "huber": Term(huber_loss, ("x", "y"), 0.3),
        "user": Term(lambda x, y: (x * y).mean(), ("x", "y"), 1e-3),  # stays in bfloat16
    }
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, logged = WeightedLoss(terms)(x=x, y=y)
    assert total.dtype == torch.float32
    user = (x * y).mean()
    expected = 0.3 * huber_loss(x.float(), y.float()) + 1e-3 * user.float()
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    assert logged["user"].dtype == torch.bfloat16


def test_a_tensor_of_a_device_without_autocast_is_left_as_it_is() -> None:
    x = torch.zeros(4, 3, dtype=torch.bfloat16, device="meta")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert huber_loss(x, x).dtype == torch.bfloat16

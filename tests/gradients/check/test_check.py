"""The checker names each planted fault, and finds none in a right gradient."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from qat.gradients import check_gradient, numpy_function, refuse_second_derivative, round_ewgs, round_ste
from qat.gradients.check.diagnose import explain_difference

X = torch.tensor([[-1.7, -0.6, 0.3], [0.9, 1.2, 2.4]], dtype=torch.float64)


class Square(Function):
    """Right; each of the faults below changes one thing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return g * 2 * x


class FactorMissing(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * ctx.saved_tensors[0]


class SignWrong(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * -2 * ctx.saved_tensors[0]


class MaskWrong(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x = ctx.saved_tensors[0]
        return g * 2 * x * (x > -1)


class OtherFormula(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * (ctx.saved_tensors[0] + 5) ** 2


class NotANumber(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * ctx.saved_tensors[0].sqrt()


class NoneReturned(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None


class UpstreamIgnored(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return 2 * ctx.saved_tensors[0]


class UpstreamAdded(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g + 2 * ctx.saved_tensors[0]


class UpstreamSignOnly(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g.sign() * 2 * ctx.saved_tensors[0]


class OneTooMany(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * 2 * ctx.saved_tensors[0], None, g


class ShapeWrong(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return (g * 2 * ctx.saved_tensors[0])[:, :2]


class NeverSaved(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * 2 * ctx.x


class SavedTooFew(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, scale = ctx.saved_tensors
        return g * 2 * x * scale


class GradModeOff(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        return torch.autograd.grad(x * x, x, g)[0]


class RecomputedDetached(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = x * x
        return torch.autograd.grad(y, x, g)[0]


class Once(Square):
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * 2 * ctx.saved_tensors[0]


class NeedsContiguous(Square):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.view(-1).square().view(x.shape)


class ReadsMemory(Square):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.as_strided(x, x.shape, (x.shape[-1], 1)).square()


class HungOnCtx(Square):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * 2 * ctx.x


class HungInDict(Square):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.kept = {"slope": 2 * x}
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * ctx.kept["slope"]


class HungInside(Square):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.closure = lambda: x
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * 2 * ctx.closure()


class IntermediateSaved(Square):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(2 * x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * ctx.saved_tensors[0]


class PartlyDetached(Square):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x.detach()


class OtherDtype(Square):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x * x).float()


class FailsForward(Square):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.autograd.grad((x * x).sum(), x)[0]


FAULTS: list[tuple[Any, str, str]] = [
    (FactorMissing, "first derivative", "numerical / analytical = 2.00 everywhere: a factor is missing"),
    (SignWrong, "first derivative", "numerical / analytical = -1.00 everywhere: the sign is wrong"),
    (MaskWrong, "first derivative", r"wrong only at 1 of 6 places: a mask or a boundary; at \(0, 0\)"),
    (OtherFormula, "first derivative", "all 6 places, without a common factor: another formula"),
    (NotANumber, "first derivative", "NaN or infinite at 2 of 6 places"),
    (NoneReturned, "first derivative", "0 or None everywhere"),
    (lambda x: torch.from_numpy(np.sqrt(x.detach().numpy() ** 2)), "first derivative", "left torch"),
    (round_ste, "first derivative", "numerical gradient is 0 everywhere.*surrogate="),
    (UpstreamIgnored, "upstream gradient", "the upstream gradient is ignored"),
    (UpstreamAdded, "upstream gradient", "an upstream gradient of 0 gives a gradient that is not 0"),
    (UpstreamSignOnly, "upstream gradient", "does not give 3 times the gradient"),
    (OneTooMany, "backward", "wrong number of gradients.*expected 1, got 3"),
    (ShapeWrong, "backward", r"wrong shape.*\[2, 2\]"),
    (NeverSaved, "backward", "reads what forward never saved.*'x'"),
    (SavedTooFew, "backward", "another number of tensors than forward saved"),
    (GradModeOff, "backward", "autograd is off inside.*enable_grad.*element 0 of tensors does not require"),
    (FailsForward, "forward", "autograd is off inside.*enable_grad"),
    (OtherDtype, "forward", "returns torch.float32 for float64 inputs"),
    (lambda x: Square()(x), "forward", r"call `MyFunction.apply\(...\)`"),
    (NeedsContiguous, "layouts", "non-contiguous: `view` needs contiguous memory"),
    (ReadsMemory, "layouts", "expanded inputs or upstream gradients give another result"),
    (HungOnCtx, "saved tensors", "ctx.x holds a tensor.*save_for_backward"),
    (HungInDict, "saved tensors", "ctx.kept holds a tensor"),
    (HungInside, "saved tensors", "changed in place after the forward, changes the gradient"),
    (Once, "second derivative", "input 0: missing; the gradient has no graph .once_differentiable"),
    (RecomputedDetached, "second derivative", "input 0: missing; the gradient has no graph"),
    (
        IntermediateSaved,
        "second derivative",
        "input 0: missing; perhaps an intermediate of forward is a constant",
    ),
    (PartlyDetached, "second derivative", "input 0: wrong: numerical / analytical = 2.00 everywhere"),
]


@pytest.mark.parametrize(
    ("function", "check", "text"), FAULTS, ids=lambda part: getattr(part, "__name__", "")
)
def test_a_planted_fault_is_named(function: Any, check: str, text: str) -> None:
    verdict = check_gradient(function, X)
    assert not verdict.ok
    found = [fault.text for fault in verdict.faults if fault.check == check]
    assert any(re.search(text, line) for line in found), str(verdict)


@pytest.mark.parametrize("inputs", [(X,), (X[0],), (X[0, 0],), (X[:0],), (X.mT,)])
def test_a_right_gradient_has_no_fault(inputs: tuple[Tensor, ...]) -> None:
    verdict = check_gradient(Square, *inputs)
    assert verdict.ok, str(verdict)
    assert {found.status for found in verdict.findings} == {"ok"}
    assert verdict.findings[-1].check == "gradgradcheck"


def test_float32_is_reported_first_and_converted() -> None:
    x = X.float()
    verdict = check_gradient(Square, x)
    assert verdict.ok, str(verdict)
    assert verdict.findings[0].status == "note"
    assert "input 0 is torch.float32" in verdict.findings[0].text
    assert x.dtype == torch.float32
    assert not x.requires_grad


def test_a_surrogate_is_compared_in_every_digit() -> None:
    assert check_gradient(round_ste, X, surrogate=lambda g, x: g).ok
    verdict = check_gradient(round_ste, X, surrogate=lambda g, x: 1.000001 * g)
    (fault,) = verdict.faults
    assert fault.check == "first derivative"
    assert "stated / analytical = 1.0000 everywhere" in fault.text


def test_a_surrogate_may_depend_on_the_size_of_the_upstream_gradient() -> None:
    # The first upstream gradient of the check lies within 2.
    verdict = check_gradient(round_ste, X, surrogate=lambda g, x: g.clamp(-2, 2))
    assert [fault.check for fault in verdict.faults] == ["upstream gradient"]
    assert "at 0, 3 times or another upstream gradient: wrong only at" in verdict.faults[0].text


def test_a_refusal_is_fine_and_shown() -> None:
    verdict = check_gradient(numpy_function(np.square, lambda g, y, x: 2 * g * x), X)
    assert verdict.ok, str(verdict)
    assert verdict.status("second derivative") == "refused"
    assert "numpy_function(square) has no second derivative" in str(verdict)
    assert verdict.status("gradgradcheck") == "skipped"
    ewgs = check_gradient(round_ewgs, X, surrogate=lambda g, x: g * (1 + 1e-3 * g.sign() * (x - x.round())))
    assert ewgs.ok, str(ewgs)


def test_several_inputs_and_outputs() -> None:
    def function(x: Tensor, power: int, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x**power * y, (x + y)[:, index], index

    verdict = check_gradient(function, X, 2, X + 3, torch.tensor([0, 2]))
    assert verdict.ok, str(verdict)


def test_only_inputs_that_require_a_gradient_are_differentiated() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return Square.apply(x) * y.detach()

    assert not check_gradient(function, X, X + 3).ok
    assert check_gradient(function, X.clone().requires_grad_(), X + 3).ok


def test_a_gradient_must_not_depend_on_whether_others_are_needed() -> None:
    class Forgets(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            x, y = ctx.saved_tensors
            return g * y if ctx.needs_input_grad[1] else None, g * x

    verdict = check_gradient(Forgets, X, X + 3)
    assert [fault.check for fault in verdict.faults] == ["one at a time"]


def test_a_partial_refusal_is_no_refusal() -> None:
    class Half(Square):
        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return refuse_second_derivative(2 * g.detach() * x.detach(), x, name="half")

    verdict = check_gradient(Half, X)
    assert "with respect to upstream gradient 0: missing" in verdict.faults[0].text


def test_the_noise_of_differences_is_no_second_derivative() -> None:
    class Identity(Square):
        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            x = ctx.saved_tensors[0].detach()
            return g * (x.cos() ** 2 + x.sin() ** 2)  # 1, but for rounding

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.clone()

    assert check_gradient(Identity, X).ok


def test_no_generator_moves() -> None:
    state = torch.get_rng_state()
    verdict = check_gradient(lambda x: x * torch.rand_like(x), X)
    assert verdict.ok, str(verdict)  # the same noise at every call
    assert torch.equal(torch.get_rng_state(), state)


def test_something_must_have_a_gradient() -> None:
    with pytest.raises(ValueError, match="check_gradient needs an input that is a floating-point tensor"):
        check_gradient(Square, torch.arange(3))


def test_inputs_too_large_for_differences() -> None:
    with pytest.raises(ValueError, match="at most 1000, got 3072; use smaller inputs"):
        check_gradient(Square, torch.zeros(3, 32, 32))
    assert check_gradient(round_ste, torch.zeros(3, 32, 32, dtype=torch.float64), surrogate=lambda g, x: g).ok


def test_a_surrogate_of_another_number_of_gradients() -> None:
    verdict = check_gradient(round_ste, X, surrogate=lambda g, x: (g, g))
    assert "surrogate must return one gradient for each of the 1 inputs" in verdict.faults[0].text


def test_consequences_of_an_ignored_upstream_gradient_are_not_reported() -> None:
    verdict = check_gradient(UpstreamIgnored, X)
    assert [fault.check for fault in verdict.faults] == ["upstream gradient"]
    assert verdict.status("first derivative") == "skipped"


def test_a_factor_beside_a_wrong_mask_is_not_called_a_factor() -> None:
    truth, got = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([5.0, 0.5, 1.0])
    assert "wrong at all 3 places" in str(explain_difference(truth, got, 1e-3, "numerical"))
    assert "= 2.00 everywhere" in str(explain_difference(truth[1:], got[1:], 1e-3, "numerical"))
    unknown = torch.full((3,), float("nan"))
    assert "wrong at all 3 places" in str(explain_difference(unknown, got, 1e-3, "numerical"))
    assert explain_difference(truth, truth.clone(), 1e-3, "numerical") is None


def test_printed() -> None:
    text = str(check_gradient(FactorMissing, X, name="mine"))
    first, *rest = text.splitlines()
    assert first == "mine: FAILED (checked against finite differences)"
    assert len(rest) == len({line.split("  ")[1] for line in rest})

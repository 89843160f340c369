"""The kit finds nothing in the built-in parts, and says in one line what is broken in others."""

import functools

import pytest
import torch
from torch import Tensor, nn

from qat.gradients import round_ewgs, round_ste, round_stochastic, round_zero
from qat.gradients.straight_through import straight_through
from qat.quantizers import (
    AsymmetricScale,
    DorefaScale,
    IntGrid,
    LearnedScale,
    ObservedScale,
    PactScale,
    PowerOfTwo,
    Quantizer,
    Scale,
)
from qat.testing import check_quantizer, check_rounding, check_scale
from qat.testing.contract import same

SIGNED, UNSIGNED = IntGrid(4), IntGrid(4, signed=False)
SCALES = [
    (ObservedScale(7, "ema"), SIGNED),
    (ObservedScale(7, "mse", (4, 1, 1, 1), 0), SIGNED),
    (ObservedScale(1, "mean", (4, 1, 1, 1), 0), IntGrid(1)),
    (LearnedScale(7, (4, 1, 1, 1), 0), SIGNED),
    (LearnedScale(15), UNSIGNED),
    (DorefaScale(7, ()), SIGNED),
    (PactScale(15), UNSIGNED),
    (AsymmetricScale(15), UNSIGNED),
    (PowerOfTwo(LearnedScale(7)), SIGNED),
]


def ewgs_gradient(g: Tensor, x: Tensor) -> Tensor:
    return g * (1 + 0.2 * g.sign() * (x - x.round()))


@pytest.mark.parametrize(
    ("rounding", "gradient"),
    [
        (round_ste, lambda g, x: g),
        (round_zero, lambda g, x: 0 * g),
        (round_stochastic, lambda g, x: g),
        (functools.partial(round_ewgs, delta=0.2), ewgs_gradient),
    ],
)
def test_built_in_roundings_follow_the_contract(rounding, gradient):
    assert check_rounding(rounding, gradient).faults == ()


@pytest.mark.parametrize(("scale", "grid"), SCALES)
def test_built_in_scales_follow_the_contract(scale, grid):
    verdict = check_scale(scale, grid)
    assert verdict.faults == ()
    assert verdict.status("packed") == "ok"  # the last check ran


def test_a_stated_gradient_of_a_quantizer_is_checked():
    quantizer = Quantizer(SIGNED, ObservedScale(7, "ema"))
    assert check_quantizer(quantizer, gradient=lambda g, x: g * (x.abs() <= 7.5)).ok
    faults = check_quantizer(quantizer, gradient=lambda g, x: 2 * g).faults
    assert "first derivative" in {fault.check for fault in faults}


def half_up(x: Tensor) -> Tensor:
    return straight_through(x, lambda x: torch.floor(x + 0.5))


def test_a_user_defined_rounding():
    assert check_rounding(half_up, lambda g, x: g).ok
    faults = check_rounding(half_up, lambda g, x: 0 * g).faults
    assert "first derivative" in {fault.check for fault in faults}


calls = 0


def counting(x: Tensor) -> Tensor:
    global calls
    calls += 1
    return round_ste(x) + calls % 2


def in_place(x: Tensor) -> Tensor:
    return x.round_()


@pytest.mark.parametrize(
    ("rounding", "text"),
    [
        (lambda x: round_ste(x), "define it at the top of a module"),
        (lambda x: x, "not all results are whole"),
        (lambda x: round_ste(x) + 2, "more than 1 away"),
        (lambda x: round_ste(x + 0.75), "whole numbers do not stay"),
        (lambda x: round_ste(x).double(), "keep both"),
        (lambda x: round_ste(x).contiguous(), "channels_last is lost"),
        (lambda x: round_ste(x.nan_to_num()), "NaN or an infinity becomes a number"),
        (in_place, "changes its input in place"),
        (counting, "two calls with one seed differ"),
        (lambda x: x.nothing(), "AttributeError"),
    ],
)
def test_each_fault_of_a_rounding_is_one_line(rounding, text):
    faults = check_rounding(rounding, lambda g, x: g).faults
    assert [fault for fault in faults if text in fault.text]
    assert all(fault.text and "\n" not in fault.text for fault in faults)


class _Largest(Scale):
    """A sound scale, from which each broken one differs in one thing."""

    def __init__(self, high: int = 7) -> None:
        super().__init__(high)
        self.register_buffer("value", torch.ones(()))

    def measure(self, x: Tensor) -> Tensor:
        if x.numel() == 0:
            return torch.full_like(self.value, torch.nan)
        return (x.abs().amax() / self.high).clamp(min=1e-30)


class _WithoutMeasure(Scale):
    def __init__(self) -> None:
        super().__init__(7)
        self.register_buffer("value", torch.ones(()))


class _WithAGraph(_Largest):
    def observe(self, x: Tensor) -> None:
        self.value.copy_(self.measure(x))


class _Replaced(_Largest):
    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        self.value = self.measure(x)


class _OutsideTheState(_Largest):
    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        self.factor = float(self.measure(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.value * self.factor


class _Negative(_Largest):
    def forward(self, x: Tensor) -> Tensor:
        return -self.value


class _MovesInEval(_Largest):
    def forward(self, x: Tensor) -> Tensor:
        self.value.mul_(1.5)
        return self.value.clone()


class _MovesInMeasure(_Largest):
    def measure(self, x: Tensor) -> Tensor:
        self.value.mul_(1.5)
        return super().measure(x)


class _SpoiltByNaN(_Largest):
    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        self.value.copy_(self.measure(x))


class _WrongShape(_Largest):
    def measure(self, x: Tensor) -> Tensor:
        return super().measure(x).reshape(1, 1)


class _Double(_Largest):
    def forward(self, x: Tensor) -> Tensor:
        return self.value.double()


@pytest.mark.parametrize(
    ("scale", "text"),
    [
        (_Largest, ""),
        (_WithoutMeasure, "`measure` is missing"),
        (_WithAGraph, "`observe` records a graph into value"),
        (_Replaced, "`observe` replaces value"),
        (_OutsideTheState, "some state is in no parameter or buffer"),
        (_Negative, "not positive"),
        (_MovesInEval, "value: moved in eval mode"),
        (_MovesInMeasure, "`measure` changes the state"),
        (_SpoiltByNaN, "the state is not finite"),
        (_WrongShape, "`measure` returns torch.float32 (1, 1)"),
        (_Double, "must be torch.float32"),
    ],
)
def test_each_fault_of_a_scale_is_one_line(scale, text):
    faults = check_scale(scale(), SIGNED).faults
    assert bool(faults) == bool(text)
    assert not text or [fault for fault in faults if text in fault.text]
    assert all(fault.text and "\n" not in fault.text for fault in faults)


class _Plain(nn.Module):
    """Values on a grid, and nothing else that the package may ask for."""

    def forward(self, x: Tensor) -> Tensor:
        return round_ste(x * 8) / 8


class _Detached(_Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.detach()) + 0 * x.sum().detach()


class _NextStep(_Plain):
    """Keeps the graph of one step in its state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + x.mean()
        return super().forward(x) * (1 + 0 * self.mean)


class _LateShape(_Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("least", torch.zeros(0))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.least = x.detach().flatten(1).min(1).values if x.numel() else self.least
        return super().forward(x)


def test_a_plain_module_is_told_what_goes_without_it():
    verdict = check_quantizer(_Plain())
    assert verdict.ok
    assert {f.check for f in verdict.findings if f.status == "note"} == {
        "codes",
        "observe",
        "freeze",
        "packed",
    }


def test_packing_is_stated_for_each_quantizer():
    def notes(rounding):
        quantizer = Quantizer(SIGNED, ObservedScale(7, "ema"), rounding)
        return [f.check for f in check_quantizer(quantizer).findings if f.status == "note"]

    assert notes(round_ste) == []
    assert notes(half_up) == ["packed"]


def test_nan_is_no_zero_and_infinity_no_number():
    assert same(torch.tensor([torch.nan, torch.inf]), torch.tensor([torch.nan, torch.inf]))
    assert not same(torch.tensor([torch.nan]), torch.tensor([0.0]))
    assert not same(torch.tensor([torch.inf]), torch.tensor([torch.finfo(torch.float32).max]))
    assert not same(torch.zeros(1), torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize(
    ("quantizer", "text"),
    [
        (_Detached, "does not require grad"),
        (_NextStep, "a second time"),
        (_LateShape, "only after the first batch"),
        (lambda: nn.Flatten(), "it returns (4, 150) for (4, 6, 5, 5)"),
    ],
)
def test_each_fault_of_a_quantizer_is_one_line(quantizer, text):
    faults = check_quantizer(quantizer()).faults
    assert [fault for fault in faults if text in fault.text]
    assert all(fault.text and "\n" not in fault.text for fault in faults)


@pytest.mark.parametrize("name", ["copies", "values", "state", "checkpointed", "packed"])
def test_what_is_checked_is_not_changed(name):
    quantizer = Quantizer(SIGNED, ObservedScale(7, "ema"))
    before = {key: value.clone() for key, value in quantizer.state_dict().items()}
    verdict = check_quantizer(quantizer)
    assert verdict.status(name) == "ok"
    assert all(torch.equal(value, quantizer.state_dict()[key]) for key, value in before.items())

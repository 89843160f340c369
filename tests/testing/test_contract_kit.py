"""The kit finds nothing in the built-in parts, and says in one line what is broken in others."""

import functools
import importlib.util
import math
import re
import sys
import textwrap

import pytest
import torch
from torch import Tensor, nn

from qat import testing
from qat.gradients import round_ewgs, round_soft, round_ste, round_stochastic, round_zero, straight_through
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
from qat.quantizers.observers import OBSERVERS
from qat.testing import check_observer, check_quantizer, check_rounding, check_scale
from qat.testing.contract import same

SIGNED, UNSIGNED = IntGrid(4), IntGrid(4, signed=False)
SCALES = [
    (ObservedScale(7, "ema"), SIGNED),
    (ObservedScale(7, "mse", (4, 1, 1, 1), 0), SIGNED),
    (ObservedScale(1, "mean", (4, 1, 1, 1), 0, step=2), IntGrid(1)),
    (LearnedScale(7, (4, 1, 1, 1), 0), SIGNED),
    (LearnedScale(15), UNSIGNED),
    (DorefaScale(7, ()), SIGNED),
    (PactScale(15), UNSIGNED),
    (AsymmetricScale(15), UNSIGNED),
    (PowerOfTwo(LearnedScale(7)), SIGNED),
]


def soft_gradient(g: Tensor, x: Tensor) -> Tensor:
    return g * 2.2 * (1 - torch.tanh(2.2 * (x - x.floor() - 0.5)) ** 2) / (2 * math.tanh(1.1))


def ewgs_gradient(g: Tensor, x: Tensor) -> Tensor:
    return g * (1 + 0.2 * g.sign() * (x - x.round()))


@pytest.mark.parametrize(
    ("rounding", "gradient"),
    [
        (round_ste, lambda g, x: g),
        (round_zero, lambda g, x: 0 * g),
        (round_stochastic, lambda g, x: g),
        (functools.partial(round_ewgs, delta=0.2), ewgs_gradient),
        (round_soft, soft_gradient),
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


PARAMETER = nn.Parameter(torch.ones(()))


class _SlopeAtInfinity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (1 + 0 * (x - x.round()))


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
        (lambda x: round_ste(x.clamp(-7, 7)), "it clamps, or changes large whole numbers"),
        (lambda x: round_ste(x.float()).to(x.dtype).detach(), "the result has no graph"),
        (lambda x: round_ste(x) + 0 * PARAMETER, "requires a gradient though its input does not"),
        (lambda x: _SlopeAtInfinity.apply(x), "the gradient at an infinity is not finite for g = 1"),
        (
            lambda x: (
                torch.mm(x.reshape(1, -1), torch.eye(x.numel(), dtype=x.dtype)).reshape(x.shape).round()
            ),
            "autoc",
        ),
    ],
)
def test_each_fault_of_a_rounding_is_one_line(rounding, text):
    faults = check_rounding(rounding, lambda g, x: g).faults
    assert [fault for fault in faults if re.search(text, fault.text)]
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


class _ZeroForZeros(_Largest):
    def measure(self, x: Tensor) -> Tensor:
        if x.numel() == 0:
            return torch.full_like(self.value, torch.nan)
        return x.abs().amax() / self.high


class _Hidden(_Largest):
    def forward(self, x: Tensor) -> Tensor:
        return super().measure(x).detach() if not self.training and x.numel() else self.value


class _FewerThanItNeeds(_Largest):
    def subsample(self, x: Tensor) -> Tensor:
        return x.flatten()[:10]


class _NotFusible(_Largest):
    is_fusible = True

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        return x.tanh()


class _AveragedWithoutBatches(_Largest):
    is_averaged = True


class _FractionalZeroPoint(_Largest):
    def zero_point(self, scale: Tensor) -> Tensor:
        return torch.tensor(1.5)


class _TrainsFrozen(_Largest):
    """Moves in transform, which runs while it is frozen, too."""

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        if self.training:
            self.value.mul_(1.01)
        return x


@pytest.mark.parametrize(
    ("scale", "text"),
    [
        (_ZeroForZeros, "the scale is 0 after a batch of zeros; keep it > 0"),
        (_Hidden, "depends on the current tensor in eval mode: set `is_dynamic`"),
        (_FewerThanItNeeds, "`measure` of `subsample` differs from that of the whole tensor"),
        (_NotFusible, "`is_fusible` must be False: the fused Function gives other values"),
        (_AveragedWithoutBatches, "`is_averaged` needs a buffer `batches`"),
        (_FractionalZeroPoint, "the zero point must be a whole number in -7..7"),
        (_TrainsFrozen, "scale.value: moves while it is frozen"),
    ],
)
def test_each_claim_of_a_scale_is_checked(scale, text):
    faults = check_scale(scale(), SIGNED).faults
    assert [fault for fault in faults if text in fault.text], faults
    assert all(fault.text and "\n" not in fault.text for fault in faults)


class _OfChannels(Scale):
    """A sound class as a configuration builds it."""

    def __init__(self, high: int, shape: tuple[int, ...] = (), axis: int | None = None) -> None:
        super().__init__(high, axis)
        self.register_buffer("value", torch.ones(shape))

    def measure(self, x: Tensor) -> Tensor:
        if x.numel() == 0:
            return torch.full_like(self.value, torch.nan)
        largest = x.detach().abs().amax(_axes(x, self.axis), keepdim=self.axis is not None).float()
        return torch.where(largest > 0, largest / self.high, torch.nan)


class _IgnoresTheAxis(_OfChannels):
    def measure(self, x: Tensor) -> Tensor:
        return (x.detach().abs().amax() / self.high).clamp(min=1e-30)


def test_a_class_is_checked_as_a_configuration_builds_it():
    assert check_scale(_OfChannels, SIGNED).faults == ()
    assert check_scale(_OfChannels(7, (4, 1, 1, 1), 0), SIGNED).faults == ()
    (fault,) = check_scale(_Largest, SIGNED).faults
    assert fault.text.startswith("it must be built as _Largest(high, shape=(), axis=None)")
    texts = [(f.check, f.text) for f in check_scale(_IgnoresTheAxis, SIGNED).faults]
    assert any(check == "of each channel: measure" and "returns" in text for check, text in texts)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: check_rounding("ste", lambda g, x: g), "rounding must be a function, got 'ste'"),
        (lambda: check_rounding(nn.Identity, lambda g, x: g), "got the class Identity"),
        (lambda: check_observer("max"), "observer must be a function, got 'max'"),
        (lambda: check_scale(0.1, SIGNED), "scale must be a Scale, got 0.1"),
        (lambda: check_scale(nn.Identity(), SIGNED), "scale must be a Scale, got Identity"),
        (lambda: check_quantizer(_Plain), "quantizer must be a module, got the class _Plain; construct it"),
    ],
)
def test_what_cannot_be_checked_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


@pytest.mark.parametrize("name", OBSERVERS)
def test_built_in_observers_follow_the_contract(name):
    assert check_observer(OBSERVERS[name].measure).faults == ()


def _axes(x: Tensor, axis: int | None) -> list[int]:
    return [a for a in range(x.dim()) if axis is None or a != axis % x.dim()]


def three_sigma(x: Tensor, axis: int | None, high: int) -> Tensor:
    return 3 * x.detach().float().square().mean(_axes(x, axis), keepdim=axis is not None).sqrt()


def squeezed(x: Tensor, axis: int | None, high: int) -> Tensor:
    return three_sigma(x, axis, high).squeeze()


def of_all(x: Tensor, axis: int | None, high: int) -> Tensor:
    return three_sigma(x, axis, high) * 0 + three_sigma(x, None, high)


def in_place_observer(x: Tensor, axis: int | None, high: int) -> Tensor:
    return x.detach().abs_().float().amax(_axes(x, axis), keepdim=axis is not None)


@pytest.mark.parametrize(
    ("observer", "text"),
    [
        (three_sigma, ""),
        (lambda x, axis, high: x.abs().max().item(), "it returns float; return a tensor"),
        (lambda x, axis, high: three_sigma(x, axis, high).double(), "it returns torch.float64 ()"),
        (lambda x, axis, high: three_sigma(x, axis, high).reshape(-1), "it returns torch.float32 (1,)"),
        (lambda x, axis, high: x.float().abs().amax(_axes(x, axis), axis is not None), "it records a graph"),
        (in_place_observer, "it changes x in place"),
        (squeezed, "it returns the shape (4,) for axis 0"),
        (of_all, "is not that of the channel alone"),
        (lambda x, axis, high: -three_sigma(x, axis, high), "must be positive and finite"),
        (lambda x, axis, high: three_sigma(x.nan_to_num(), axis, high), "a batch with NaN"),
        (lambda x, axis, high: three_sigma(x, axis, high).log(), "must be"),
        (lambda x, axis, high: three_sigma(x, axis, high) * torch.rand(()), "two calls differ"),
    ],
)
def test_each_fault_of_an_observer_is_one_line(observer, text):
    faults = check_observer(observer).faults
    if text:
        assert [fault for fault in faults if text in fault.text], faults
    else:
        assert faults == ()
    assert all(fault.text and "\n" not in fault.text for fault in faults)


@pytest.mark.parametrize("name", testing.__all__)
def test_the_example_in_each_docstring_runs(name, tmp_path, capsys, monkeypatch):
    _, _, rest = getattr(testing, name).__doc__.partition("`my_parts.py`:\n")
    code = textwrap.dedent(rest.partition("\n    Args:")[0])
    (tmp_path / "my_parts.py").write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("my_parts", tmp_path / "my_parts.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "my_parts", module)
    spec.loader.exec_module(module)
    assert module.verdict.ok, module.verdict
    assert capsys.readouterr().out.startswith(module.verdict.name)


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


class _UnderAutocast(_Plain):
    def forward(self, x: Tensor) -> Tensor:
        eye = torch.eye(x.shape[-1], dtype=x.dtype)
        return super().forward(x @ eye).to(x.dtype)


class _WithoutGrad(_Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if torch.is_grad_enabled() else x


class _Averages(_Plain):
    """Moves a buffer in training, until it is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.frozen = False

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.numel() and not self.frozen and x.isfinite().all():
            self.move(x.detach().float().mean())
        return super().forward(x)

    def move(self, mean: Tensor) -> None:
        self.mean.mul_(0.9).add_(0.1 * mean)

    def freeze(self) -> None:
        self.frozen = True

    def unfreeze(self) -> None:
        self.frozen = False


class _ReplacedState(_Averages):
    def move(self, mean: Tensor) -> None:
        self.mean = 0.9 * self.mean + 0.1 * mean


class _NeverFrozen(_Averages):
    def freeze(self) -> None:
        pass


class _NeverThawed(_Averages):
    def unfreeze(self) -> None:
        pass


class _OffTheGrid(Quantizer):
    def __init__(self, grid: IntGrid = SIGNED) -> None:
        super().__init__(grid, ObservedScale(grid.high, "ema"))

    def forward(self, x: Tensor, relu: bool = False) -> Tensor:
        return super().forward(x, relu) * 1.01


class _Subclass(_OffTheGrid):
    def forward(self, x: Tensor, relu: bool = False) -> Tensor:
        return Quantizer.forward(self, x, relu)


class _OtherCodes(_Subclass):
    def codes(self, x: Tensor) -> Tensor:
        return super().codes(x) + 4


class _OddCodes(_Subclass):
    def __init__(self) -> None:
        super().__init__(IntGrid(1))

    def codes(self, x: Tensor) -> Tensor:
        return super().codes(x).clamp(min=0)


class _TwoObservations(_Subclass):
    def forward(self, x: Tensor, relu: bool = False) -> Tensor:
        if self.training:
            self.observe(x)
        return super().forward(x, relu)


def test_a_subclass_of_quantizer_is_sound():
    assert check_quantizer(_Subclass()).faults == ()


def test_a_rounding_that_is_not_half_to_even_is_noted():
    assert check_rounding(half_up, lambda g, x: g).status("ties") == "note"
    assert check_rounding(round_ste, lambda g, x: g).status("ties") == "skipped"


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
        (_UnderAutocast, "under autocast it gives another dtype or other values"),
        (_WithoutGrad, "under torch.no_grad() it gives other values"),
        (_ReplacedState, "mean: replaced by a training forward; change it in place"),
        (_NeverFrozen, "mean: moves while it is frozen"),
        (_NeverThawed, "mean: does not move again after unfreeze"),
        (_OffTheGrid, "the values are not (codes - zero_point) * scale"),
        (_OtherCodes, "codes must be int32 in -7..7; got torch.int32 in"),
        (_OddCodes, "codes must be -1, 1, ..., 1; others occur"),
        (_TwoObservations, "a training forward moves more than one `observe`"),
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

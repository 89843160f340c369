"""What every kind of scale must do, against an independent NumPy reference.

A new scale or observer adds a row to `KINDS`.
"""

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from qat.gradients import round_zero
from qat.memory import Checkpointed
from qat.quantizers import (
    ActivationObserverName,
    ActivationScaleName,
    ObservedScale,
    PowerOfTwo,
    Quantizer,
    Scale,
    WeightObserverName,
    WeightScaleName,
    activation_quantizer,
    weight_quantizer,
)
from qat.quantizers.observers import FRACTIONS, LEVEL_DISTANCES, OBSERVERS, ObserverName


def largest(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return np.abs(x).max() / np.float32(high)


def largest_of_channels(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return np.abs(x).max(axis=(1, 2, 3), keepdims=True) / np.float32(high)


def lsq(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return 2 * np.abs(x).mean() / np.sqrt(np.float32(high))


def lsq_of_channels(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return 2 * np.abs(x).mean(axis=(1, 2, 3), keepdims=True) / np.sqrt(np.float32(high))


def odd_lsq(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return lsq_of_channels(x, low, high) / 2


def mean(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return LEVEL_DISTANCES[high - low + 1] * np.abs(x).mean()


def odd_mean(x: np.ndarray, low: int, high: int) -> np.ndarray:
    means = np.abs(x).mean(axis=(1, 2, 3), keepdims=True, dtype=np.float32)
    return means * np.float32(LEVEL_DISTANCES[high + 1] / 2)


def percentile(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return np.sort(np.abs(x), axis=None)[::-1][x.size // 1000] / np.float32(high)


def least_squares(x: np.ndarray, low: int, high: int) -> np.ndarray:
    scales = [np.float32(f) * np.abs(x).max() / np.float32(high) for f in FRACTIONS]
    errors = [np.square(x - np.clip(np.rint(x / s), -high, high) * s).sum() for s in scales]
    return scales[int(np.argmin(errors))]


def odd_least_squares(x: np.ndarray, low: int, high: int) -> np.ndarray:
    scales = [np.float32(f) * np.abs(x).max() / np.float32(high) for f in FRACTIONS]
    errors = [np.square(x - np.clip(2 * np.rint((x / s - 1) / 2) + 1, -high, high) * s).sum() for s in scales]
    return scales[int(np.argmin(errors))]


def unit(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return np.float32(1) / np.float32(high)


def width(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return (max(x.max(), 0) - min(x.min(), 0)) / np.float32(high)


def two_to_the(scale: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda *args: np.exp2(np.rint(np.log2(scale(*args).astype(np.float64)))).astype(np.float32)


@dataclass(frozen=True)
class Kind:
    """How a quantizer is built, its scale after the first batch, and the transform before the division."""

    build: Callable[..., Quantizer]
    scale: Callable[[np.ndarray, int, int], np.ndarray]
    options: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[np.ndarray], np.ndarray] = lambda x: x

    def make(self, x: Tensor, bits: int = 4, **options: Any) -> Quantizer:
        if "levels" in self.options and bits > 4:
            pytest.skip("midrise grids have at most 4 bits")
        return self.build(x, bits, **self.options, **options)

    def data(self, n: int = 2400, seed: int = 0) -> Tensor:
        torch.manual_seed(seed)
        x = torch.randn(n).reshape(4, -1, 2, 2)
        return x.abs() if self.options.get("signed") is False else x

    @property
    def moves(self) -> bool:
        return "batches" in dict(self.make(self.data()).named_buffers())


A, W = activation_quantizer, weight_quantizer
MIDRISE: dict[str, Any] = {"levels": "midrise"}
KINDS = {
    "weight, max": Kind(W, largest_of_channels, {"axis": 0}),
    "weight, max, one scale": Kind(W, largest, {"axis": None}),
    "weight, percentile": Kind(W, percentile, {"axis": None, "observer": "percentile"}),
    "weight, mse": Kind(W, least_squares, {"axis": None, "observer": "mse"}),
    "weight, mean": Kind(W, mean, {"axis": None, "observer": "mean"}),
    "weight, mean, midrise": Kind(W, odd_mean, {"axis": 0, "observer": "mean", **MIDRISE}),
    "weight, max, midrise, 2^k": Kind(
        W, two_to_the(largest_of_channels), {"axis": 0, "power_of_two": True, **MIDRISE}
    ),
    "weight, mse, midrise": Kind(W, odd_least_squares, {"axis": None, "observer": "mse", **MIDRISE}),
    "weight, learned, midrise": Kind(W, odd_lsq, {"axis": 0, "scale": "learned", **MIDRISE}),
    "weight, learned": Kind(W, lsq_of_channels, {"axis": 0, "scale": "learned"}),
    "weight, dorefa": Kind(
        W, unit, {"axis": None, "scale": "dorefa"}, lambda x: np.tanh(x) / np.abs(np.tanh(x)).max()
    ),
    "weight, max, 2^k": Kind(W, two_to_the(largest_of_channels), {"axis": 0, "power_of_two": True}),
    "weight, learned, 2^k": Kind(
        W, two_to_the(lsq_of_channels), {"axis": 0, "scale": "learned", "power_of_two": True}
    ),
    "ema": Kind(A, largest, {"signed": False}),
    "ema, signed": Kind(A, largest, {"signed": True}),
    "percentile": Kind(A, percentile, {"signed": False, "observer": "percentile"}),
    "mse": Kind(A, least_squares, {"signed": True, "observer": "mse"}),
    "learned": Kind(A, lsq, {"signed": False, "scale": "learned"}),
    "learned, signed": Kind(A, lsq, {"signed": True, "scale": "learned"}),
    "pact": Kind(A, largest, {"signed": False, "scale": "pact"}),
    "pact, 2^k": Kind(A, two_to_the(largest), {"signed": False, "scale": "pact", "power_of_two": True}),
    "ema, 2^k": Kind(A, two_to_the(largest), {"signed": True, "power_of_two": True}),
    "asymmetric": Kind(A, width, {"signed": True, "asymmetric": True}),
    "asymmetric, 2^k": Kind(A, two_to_the(width), {"signed": True, "asymmetric": True, "power_of_two": True}),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


# Built by a combination of options; test_observers.py has its tests.
ELSEWHERE = {"mse_power_of_two"}


NAMES: dict[tuple[Callable[..., Quantizer], str], Any] = {
    (W, "scale"): WeightScaleName,
    (A, "scale"): ActivationScaleName,
    (W, "observer"): WeightObserverName,
    (A, "observer"): ActivationObserverName,
}


@pytest.mark.parametrize("build", [A, W])
@pytest.mark.parametrize("argument", ["scale", "observer"])
def test_every_name_has_a_row(build: Callable[..., Quantizer], argument: str) -> None:
    default = inspect.signature(build).parameters[argument].default
    rows = {kind.options.get(argument, default) for kind in KINDS.values() if kind.build is build}
    assert rows == set(get_args(NAMES[build, argument]))


def test_every_scale_and_observer_of_the_package_has_a_row() -> None:
    scales = {kind.make(kind.data()).scale for kind in KINDS.values()}
    scales |= {scale.inner for scale in scales if isinstance(scale, PowerOfTwo)}
    own = {kind for kind in Scale.__subclasses__() if kind.__module__.startswith("qat.")}
    assert {type(scale) for scale in scales} == own
    observers = {scale.observer for scale in scales if isinstance(scale, ObservedScale)}
    assert observers == {row for name, row in OBSERVERS.items() if name not in ELSEWHERE}
    assert set(OBSERVERS) == set(get_args(ObserverName))


def state(quantizer: Quantizer) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in quantizer.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def reference(
    kind: Kind, quantizer: Quantizer, x: Tensor, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The codes, and where they are certain: where no tie is within the error of tanh or mean."""
    low, high = quantizer.grid.low, quantizer.grid.high
    v = kind.prepare(x.numpy()) / scale
    zero = 0
    if "asymmetric" in kind.options:
        zero = np.clip(np.rint(-min(x.numpy().min(), 0) / scale), low, high)
    if quantizer.grid.midrise:
        n = (v - 1) / 2
        codes = np.clip(2 * np.rint(n) + 1, low, high)
        return codes, np.abs(n - np.floor(n) - 0.5) > 1e-4
    return np.clip(np.rint(v), low - zero, high - zero) + zero, np.abs(v - np.floor(v) - 0.5) > 1e-4


@each_kind
@pytest.mark.parametrize("bits", range(2, 9))
def test_codes_and_values_equal_a_numpy_reference(kind: Kind, bits: int) -> None:
    x = kind.data()
    quantizer = kind.make(torch.zeros_like(x), bits)
    y = quantizer(x)  # the first batch sets the scale, whatever its initial value
    scale = kind.scale(x.numpy(), quantizer.grid.low, quantizer.grid.high)
    np.testing.assert_allclose(quantizer.scale(x).detach().numpy(), scale, rtol=1e-6)
    codes, certain = reference(kind, quantizer, x, scale)
    assert certain.mean() > 0.95
    got = quantizer.codes(x)
    assert got.dtype == torch.int32
    assert np.array_equal(got.numpy()[certain], codes[certain])
    zero = quantizer.scale.zero_point(quantizer.scale(x))
    assert torch.equal(y, (got - (0 if zero is None else zero)) * quantizer.scale(x))


@each_kind
@pytest.mark.parametrize("bits", range(2, 9))
def test_ties_go_to_even(kind: Kind, bits: int) -> None:
    if "dorefa" in kind.options.values():
        pytest.skip("a tie before the tanh is not one after it")
    x = kind.data()
    quantizer = kind.make(x, bits).eval()
    quantizer.freeze()
    scale = quantizer.scale(x).detach().flatten()[0]  # of the first channel
    steps = np.arange(0 if quantizer.grid.low == 0 else -5, 3, dtype=np.float32) + np.float32(0.5)
    ties = torch.from_numpy(steps) * scale
    padded = torch.zeros(4, len(ties), 1, 1)
    padded[0, :, 0, 0] = ties
    zero = quantizer.scale.zero_point(scale)
    shift = 0 if zero is None else int(zero)
    expected = np.clip(np.rint((ties / scale).numpy()) + shift, quantizer.grid.low, quantizer.grid.high)
    if quantizer.grid.midrise:  # ties lie at even numbers
        padded[0, :, 0, 0] = ties = (torch.from_numpy(steps) * 2 + 1) * scale
        n = np.rint(((ties / scale).numpy() - 1) / 2)
        expected = np.clip(2 * n + 1, quantizer.grid.low, quantizer.grid.high)
    assert quantizer.codes(padded)[0, :, 0, 0].tolist() == expected.tolist()


@each_kind
@pytest.mark.parametrize("bits", range(1, 9))
def test_every_level_occurs_on_uniform_data(kind: Kind, bits: int) -> None:
    low = 0.0 if kind.options.get("signed") is False else -1.0
    x = torch.linspace(low, 1, 4001)[torch.randperm(4001)][:4000].reshape(4, -1, 2, 2)
    quantizer = kind.make(x, bits)
    quantizer(x)
    if {"learned", "mean"} & set(kind.options.values()) or kind.options.get("power_of_two"):
        # Their initial scale may have more codes than the data reach.
        quantizer.freeze()
        x = 1.1 * quantizer.grid.high * quantizer.scale(x).detach() * x
    assert len(quantizer.codes(x).unique()) == quantizer.grid.levels


@each_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_and_format_are_kept_and_state_stays_float32(kind: Kind, dtype: torch.dtype) -> None:
    x = kind.data().to(dtype).contiguous(memory_format=torch.channels_last).requires_grad_()
    quantizer = kind.make(x.detach().float()).to(dtype)
    y = quantizer(x)
    assert y.dtype == dtype
    assert y.is_contiguous(memory_format=torch.channels_last)
    y.sum().backward()
    for tensor in (*quantizer.parameters(), *quantizer.buffers()):
        assert tensor.dtype in (torch.float32, torch.int64, torch.bool)
    for parameter in quantizer.parameters():
        assert parameter.grad is not None
        assert (parameter.grad.dtype, parameter.grad.shape) == (torch.float32, parameter.shape)
        assert quantizer.to(torch.float64) is quantizer
        assert parameter.grad.dtype == torch.float32


@each_kind
def test_codes_are_computed_in_float32_under_autocast(kind: Kind) -> None:
    x = kind.data().bfloat16()
    quantizer = kind.make(x.float(), 8).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = quantizer(x)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, quantizer(x.float()).bfloat16())


@each_kind
def test_state_moves_once_a_forward_and_in_training_only(kind: Kind) -> None:
    x = kind.data()
    quantizer = kind.make(x)
    with torch.no_grad():
        quantizer(x)
        quantizer(x)
    if kind.moves:
        assert next(b for n, b in quantizer.named_buffers() if n.endswith("batches")).item() == 2
    before = state(quantizer)
    quantizer.codes(2 * x)
    quantizer.eval()(2 * x)
    assert same(before, state(quantizer))


@each_kind
def test_shapes_are_final_and_loading_is_strict(kind: Kind) -> None:
    x = kind.data()
    old, new = kind.make(x), kind.make(torch.zeros_like(x))
    old(x)
    new.load_state_dict(old.state_dict(), strict=True)
    for batch in (kind.data(seed=1), kind.data(seed=2)):
        assert torch.equal(old(batch), new(batch))
    assert same(state(old), state(new))


@each_kind
def test_copies_and_pickles_agree_before_and_after_a_step(kind: Kind) -> None:
    quantizer = kind.make(kind.data())
    for step in range(2):
        twins = [copy.deepcopy(quantizer), pickle.loads(pickle.dumps(quantizer))]
        x = kind.data(seed=step + 1)
        y = quantizer(x)
        y.sum().backward() if y.requires_grad else None
        for twin in twins:
            assert torch.equal(twin(x), y)
            assert same(state(twin), state(quantizer))


@each_kind
def test_a_frozen_scale_stays_and_its_state_says_so(kind: Kind) -> None:
    x = kind.data()
    quantizer = kind.make(x)
    quantizer(x)
    quantizer.freeze()
    before, y = state(quantizer), quantizer(x)
    for mode in (True, False):
        quantizer.train(mode)(3 * x)
        assert torch.equal(quantizer(x), y)
        assert same(before, state(quantizer))
    other = kind.make(x)
    other.load_state_dict(quantizer.state_dict())
    other(3 * x)
    assert same(before, state(other))
    other.unfreeze()
    other(3 * x)
    assert not same(before, state(other))


@each_kind
def test_a_frozen_scale_gets_no_gradient(kind: Kind) -> None:
    x = kind.data().requires_grad_()
    quantizer = kind.make(x)
    quantizer.freeze()
    quantizer(x).sum().backward()
    assert all(p.grad is None for p in quantizer.parameters())
    quantizer.unfreeze()
    quantizer(x).sum().backward()
    assert all(p.grad is not None for p in quantizer.parameters())


@each_kind
def test_a_disabled_quantizer_does_nothing(kind: Kind) -> None:
    x = kind.data()
    quantizer = kind.make(x)
    quantizer.enabled = False
    before = state(quantizer)
    assert quantizer(x) is x
    quantizer.observe(3 * x)
    assert same(before, state(quantizer))


@each_kind
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_batch_that_is_not_finite_moves_nothing(kind: Kind, bad: float) -> None:
    quantizer = kind.make(kind.data())
    quantizer(kind.data())
    before = state(quantizer)
    batch = kind.data(seed=1)
    batch[:, 0] = bad
    quantizer(batch)
    after = state(quantizer)
    if "dorefa" in kind.options.values() and bad == torch.inf:
        assert all(value.isfinite().all() for value in after.values())  # tanh of infinity is 1
        return
    if not kind.moves or (bad == torch.inf and "learned" not in kind.options.values()):
        assert same(before, after)
    assert all(value.isfinite().all() for value in after.values())


@each_kind
def test_a_first_batch_that_is_not_finite_sets_nothing(kind: Kind) -> None:
    x = kind.data()
    quantizer, other = kind.make(torch.zeros_like(x)), kind.make(torch.zeros_like(x))
    quantizer(torch.full_like(x, torch.nan))
    assert torch.equal(quantizer(x), other(x))
    assert same(state(quantizer), state(other))


@each_kind
@pytest.mark.parametrize("mode", [True, False])
def test_an_empty_batch(kind: Kind, mode: bool) -> None:
    quantizer = kind.make(kind.data()).train(mode)
    before = state(quantizer)
    x = torch.zeros(4, 0, 2, 2, requires_grad=True)
    y = quantizer(x)
    assert y.shape == x.shape
    y.sum().backward()
    assert same(before, state(quantizer))


@each_kind
def test_a_zero_channel_and_a_tiny_one(kind: Kind) -> None:
    x = kind.data()
    x[0] = 0
    x[1] *= 1e-30
    quantizer = kind.make(x)
    y = quantizer(x)
    scale = quantizer.scale(x)
    assert ((scale > 0) & scale.isfinite()).all()
    # On a grid without a zero a zero becomes the scale, or minus the scale.
    nothing = scale if quantizer.grid.midrise else torch.zeros_like(scale)
    assert (y[0].abs() <= nothing.flatten()[0]).all()
    assert y.isfinite().all()
    if scale.numel() > 1:
        assert y[1].any()
    zeros = torch.zeros_like(x)
    assert (quantizer(zeros).abs() <= (quantizer.scale(zeros) if quantizer.grid.midrise else 0)).all()


@each_kind
def test_checkpointed_equals_plain_with_two_forwards_before_one_backward(kind: Kind) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(kind.data(seed=3))
            self.quantizer = kind.make(torch.zeros(4, 4, 2, 2))

        def forward(self, x: Tensor) -> Tensor:
            return self.quantizer(self.weight * x).square()

    plain = Twice()
    other = Checkpointed(copy.deepcopy(plain))
    for model in (plain, other):
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for step in range(3):
            optimizer.zero_grad()
            first = kind.data(seed=step).abs()
            (model(first).mean() + model(2 * first).mean()).backward()
            optimizer.step()
    assert same(plain.state_dict(), other.state_dict())
    for a, b in zip(plain.parameters(), other.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.equal(a.grad, b.grad)


@each_kind
def test_rounds_true_gradient_is_zero_for_x(kind: Kind) -> None:
    x = kind.data().requires_grad_()
    kind.make(x.detach(), rounding=round_zero)(x).sum().backward()
    assert x.grad is not None
    assert not x.grad.any()


@each_kind
def test_an_observed_scale_keeps_nothing_of_the_batch_but_masks(kind: Kind) -> None:
    if {"learned", "dorefa"} & set(map(str, kind.options.values())):
        pytest.skip("these need x for their gradient")
    saved: list[Tensor] = []
    x = kind.data().requires_grad_()
    quantizer = kind.make(x.detach())
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        quantizer(x)
    masks = {torch.bool} if quantizer.outside == "masked" else set()
    assert {t.dtype for t in saved if t.numel() == x.numel()} == masks

"""The first batch that says something sets a scale: zeros, empty batches, NaN and infinity do not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from qat.quantizers import IntGrid, LearnedScale, ObservedScale, Quantizer, activation_quantizer
from qat.quantizers.observers import OBSERVERS, ObserverName

AVERAGED = [name for name, row in OBSERVERS.items() if row.averaging_constant is not None]
X = torch.linspace(0.1, 1, 64).reshape(4, 4, 2, 2)
NOTHING = {
    "zeros": torch.zeros_like(X),
    "minus zero": -torch.zeros_like(X),
    "subnormal": torch.full_like(X, 1e-42),
    "empty": torch.zeros(0, 4, 2, 2),
    "NaN": torch.full_like(X, torch.nan),
    "infinite": torch.full_like(X, torch.inf),
}
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"observer": name} for name in ("ema", "percentile", "mse")},
    "learned": {"scale": "learned"},
    "pact": {"scale": "pact"},
    "asymmetric": {"asymmetric": True},
    "power of two": {"power_of_two": True},
}
each_kind = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
each_nothing = pytest.mark.parametrize("nothing", NOTHING.values(), ids=NOTHING)


def make(options: dict[str, Any], sample: Tensor = X) -> Quantizer:
    return activation_quantizer(sample, 4, signed=False, **options)


def state(quantizer: Quantizer) -> list[Tensor]:
    return [value.clone() for value in quantizer.state_dict().values()]


@each_kind
@each_nothing
def test_it_neither_sets_nor_initializes_nor_moves(options: dict[str, Any], nothing: Tensor) -> None:
    constructed, initialized = make(options, NOTHING["empty"]), make(options, nothing)
    assert all(map(torch.equal, state(constructed), state(initialized)))
    for quantizer in (initialized, make(options)):
        before = state(quantizer)
        quantizer(nothing)
        assert all(map(torch.equal, before, state(quantizer)))
    first, late = make(options), make(options)
    for _ in range(3):
        late(nothing)
    first(0.5 * X)
    late(0.5 * X)  # still the first that sets it
    assert all(map(torch.equal, state(first), state(late)))
    before = state(first)
    first(nothing)  # and none of these counts later
    assert all(map(torch.equal, before, state(first)))


@pytest.mark.parametrize("build", [lambda high: ObservedScale(high, "ema"), LearnedScale])
def test_zeros_at_the_start_cost_no_range(build: Callable[[int], Any]) -> None:
    quantizer = Quantizer(IntGrid(4, signed=False), build(15)).train()
    quantizer(torch.zeros(8))
    quantizer(torch.ones(8))
    expected = 1 / 15 if isinstance(quantizer.scale, ObservedScale) else 2 / 15**0.5
    torch.testing.assert_close(quantizer.scale.value.detach(), torch.tensor(expected))


@pytest.mark.parametrize("observer", AVERAGED)
def test_each_channel_has_a_first_batch_of_its_own(observer: ObserverName) -> None:
    scale = ObservedScale(15, observer, (4, 1, 1, 1), axis=0)
    late = X.clone()
    late[1] = 0
    scale.observe(late)
    assert scale.batches.flatten().tolist() == [1, 0, 1, 1]
    assert scale.value[1] == 1  # as constructed
    alone = ObservedScale(15, observer, (4, 1, 1, 1), axis=0)
    alone.observe(2 * X)
    before = scale.value.clone()
    scale.observe(2 * X)
    assert scale.value[1] == alone.value[1]
    torch.testing.assert_close(scale.value[[0, 2, 3]], (0.9 * before + 0.1 * alone.value)[[0, 2, 3]])
    for _ in range(3):
        scale.observe(late)  # a channel of zeros does not keep the others from being averaged
    torch.testing.assert_close(scale.batches.flatten(), torch.tensor([5.0, 1, 5, 5]))


def test_a_learned_scale_of_channels_takes_the_others_for_one_of_zeros() -> None:
    scale = LearnedScale(7, (4, 1, 1, 1), axis=0)
    x = X.clone()
    x[1] = 0
    scale.observe(x)
    torch.testing.assert_close(scale.value[1], scale.value[[0, 2, 3]].mean(0))
    assert (scale.batches == 1).all()
    nan = x.clone()
    nan[2] = torch.nan
    other = LearnedScale(7, (4, 1, 1, 1), axis=0)
    other.observe(nan)
    other.observe(x)
    assert torch.equal(other.value[2], scale.value[2])  # set by the batch that says something of it


@pytest.mark.parametrize("observer", [name for name in OBSERVERS if name not in AVERAGED])
def test_the_scale_of_a_weight_of_zeros_is_the_floor(observer: ObserverName) -> None:
    # Unlike activations, all of a weight is known: on the grid {-1, +1} its values must be 0.
    for mode in (True, False):
        quantizer = Quantizer(IntGrid(1), ObservedScale(1, observer)).train(mode)
        assert quantizer(torch.zeros(4, 3)).abs().max() < 1e-37


@each_kind
def test_restart_lets_the_next_batch_set_a_moving_average(options: dict[str, Any]) -> None:
    anew, fresh = make(options), make(options)
    if not anew.scale.is_averaged:
        pytest.skip("the scale is learned")
    anew(X)
    anew.scale.restart()
    for quantizer in (anew, fresh):
        quantizer(3 * X)
    assert torch.equal(anew.scale(X), fresh.scale(X))


def test_a_range_whose_width_overflows_is_not_measured() -> None:
    quantizer = activation_quantizer(X, 4, signed=True, asymmetric=True)
    before = state(quantizer)
    quantizer(torch.tensor([-3.4e38, 3.4e38]))
    assert all(map(torch.equal, before, state(quantizer)))

"""What the contract does not test: the table of names, random rounding, limits of the parameters."""

import math
from typing import get_args

import pytest
import torch

from qat.gradients import (
    ROUNDINGS,
    RoundingName,
    one_hot_argmax_ste,
    round_ewgs,
    round_soft,
    round_stochastic,
    sign_ste,
)

TIES = torch.tensor([-2.5, -1.5, -0.5, 0.2, 0.5, 0.7, 1.4, 1.5, 2.5])
NAN = float("nan")


def test_the_names_of_configurations_are_those_of_the_table() -> None:
    assert list(get_args(RoundingName)) == list(ROUNDINGS)


@pytest.mark.parametrize("name", sorted(ROUNDINGS.keys() - {"stochastic"}))
def test_half_to_even(name: str) -> None:
    assert ROUNDINGS[name](TIES).tolist() == [-2, -2, 0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("name", ROUNDINGS)
def test_nan_stays_nan(name: str) -> None:
    assert ROUNDINGS[name](torch.tensor([NAN])).isnan().all()
    assert sign_ste(torch.tensor([NAN])).isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [2**-10, 0.3, 2.875, -0.7])
def test_random_rounding_is_right_on_average(value: float, dtype: torch.dtype) -> None:
    count = 100_000
    x = torch.full((count,), value, dtype=dtype)
    low = math.floor(value)
    fraction = x[0].item() - low  # of the value in this dtype
    y = round_stochastic(x, torch.Generator().manual_seed(0)).double()
    assert set(y.unique().tolist()) == {low, low + 1}
    # Five standard deviations of a mean of `count` draws: wrong for one seed in two million.
    assert abs(y.mean().item() - low - fraction) < 5 * (fraction * (1 - fraction) / count) ** 0.5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_random_rounding_keeps_integers(dtype: torch.dtype) -> None:
    # 3 + 0.999 is 4 in bfloat16, and 1 + (1 - 2^-24) is 2 in float32.
    x = torch.arange(-128.0, 129.0).to(dtype).expand(1000, -1)
    assert torch.equal(round_stochastic(x), x)


@pytest.mark.parametrize(("u", "rounded"), [(0.0, [-1, 0, 1, 1]), (1 - 2**-24, [-1, 0, 0, 1])])
def test_random_rounding_at_the_ends_of_the_noise(
    u: float, rounded: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, generator=None: self.fill_(u))
    assert round_stochastic(torch.tensor([-1.0, 0.0, 0.25, 1.0])).tolist() == rounded


def test_random_rounding_repeats_itself() -> None:
    x = torch.linspace(-2, 2, 1001)
    generator = torch.Generator().manual_seed(1)
    first = round_stochastic(x, generator)
    assert not torch.equal(round_stochastic(x, generator), first)
    assert torch.equal(round_stochastic(x, generator.manual_seed(1)), first)
    before = torch.get_rng_state()
    round_stochastic(x, generator)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert torch.equal(round_stochastic(x), first)


def test_ends_of_the_soft_staircase() -> None:
    x = torch.tensor([0.01, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64, requires_grad=True)
    flat, steep = (torch.autograd.grad(round_soft(x, k).sum(), x)[0] for k in (1e-4, 100.0))
    torch.testing.assert_close(flat, torch.ones_like(x), rtol=1e-8, atol=0)
    assert steep[2] == 50
    assert steep[[0, 1, 3, 4]].max() < 1e-8


def test_bad_parameters() -> None:
    x = torch.zeros(2)
    with pytest.raises(ValueError, match=r"sharpness must be > 0, got 0; 2\.2 is the default"):
        round_soft(x, 0)
    with pytest.raises(ValueError, match="delta must be >= 0, got nan; 1e-3 is the default"):
        round_ewgs(x, NAN)


def test_the_sign_of_zeros_and_infinities() -> None:
    x = torch.tensor([-float("inf"), -1e-45, -0.0, 0.0, 1e-45, float("inf")])
    assert sign_ste(x).tolist() == [-1, -1, 1, 1, 1, 1]


def test_the_first_of_equals_wins() -> None:
    assert one_hot_argmax_ste(torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])).tolist() == [
        [0, 1, 0],
        [1, 0, 0],
    ]
    assert one_hot_argmax_ste(torch.tensor(5.0)).item() == 1

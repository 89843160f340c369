"""Learned scales: their gradient, that it never vanishes, and that they stay positive."""

import math

import pytest
import torch
from torch import Tensor

from qat.gradients import round_soft, round_ste, round_zero
from qat.quantizers import IntGrid, LearnedScale, PowerOfTwo, Quantizer

V = torch.tensor([-9, -3.3, 0.4, 6.6, 9])
FULL = IntGrid(4, narrow=False)  # -8..7


def with_scale(scale: Tensor, grid: IntGrid = FULL, rounding=round_ste) -> Quantizer:
    """A quantizer in eval mode whose scale is set by hand."""
    learned = LearnedScale(grid.high, tuple(scale.shape))
    learned.value.data.copy_(scale)
    return Quantizer(grid, learned, rounding).eval()


def gradients(quantizer: Quantizer, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(quantizer(x), (x, quantizer.scale.value), g)


def test_gradient_of_the_scale_by_element() -> None:
    for g, expected in zip(torch.eye(5), (-8, 0.3, -0.4, 0.4, 7), strict=True):
        _, got = gradients(with_scale(torch.tensor(1.0)), V, g)
        assert got.item() * math.sqrt(5 * 7) == pytest.approx(expected, rel=1e-5)


def test_inside_is_before_rounding_for_x_and_scale_alike() -> None:
    quantizer = with_scale(torch.tensor(1.0))
    x = torch.tensor([-8.4, -8.0, 7.0, 7.4])
    for g, inside, expected in zip(torch.eye(4), (0, 1, 1, 0), (-8, 0, 0, 7), strict=True):
        of_x, of_scale = gradients(quantizer, x, g)
        assert torch.equal(of_x, inside * g)
        assert of_scale.item() * math.sqrt(4 * 7) == pytest.approx(expected, abs=1e-6)


def test_true_rounding_leaves_the_scale_the_codes() -> None:
    g = torch.tensor([1.0, 2, 3, 4, 5])
    of_x, of_scale = gradients(with_scale(torch.tensor(1.0), rounding=round_zero), V, g)
    assert not of_x.any()
    codes = torch.tensor([-8.0, -3, 0, 7, 7])
    assert of_scale.item() == pytest.approx((g @ codes).item() / math.sqrt(5 * 7), rel=1e-6)


@pytest.mark.parametrize("shape", [(), (6,), (3, 1, 1, 1), (1, 1, 1, 1), (3, 1, 5, 6)])
@pytest.mark.parametrize("rounding", [round_ste, round_soft])
def test_gradient_has_the_scales_shape_and_equals_the_closed_form(shape: tuple[int, ...], rounding) -> None:
    torch.manual_seed(0)
    c = shape[0] if len(shape) == 4 else 3
    x, g = torch.randn(c, 4, 5, 6), torch.randn(c, 4, 5, 6)
    scale = torch.rand(shape) / 5 + 0.05
    of_x, of_scale = gradients(with_scale(scale, rounding=rounding), x, g)
    v = (x / scale).double()
    inside = (v >= -8) & (v <= 7)
    soft = 2.2 / torch.cosh(2.2 * (v - v.floor() - 0.5)) ** 2 / (2 * math.tanh(1.1))
    slope = torch.ones_like(v) if rounding is round_ste else soft
    code = v.round().clamp(-8, 7)
    each = g * (code - torch.where(inside, v * slope, 0.0))
    expected = each.sum_to_size(shape) / math.sqrt(x.numel() // scale.numel() * 7)
    assert of_scale.shape == shape
    torch.testing.assert_close(of_scale.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(of_x.double(), torch.where(inside, g * slope, 0.0), rtol=1e-4, atol=1e-6)


def test_the_gradient_of_x_is_g_to_the_last_bit_at_any_scale() -> None:
    torch.manual_seed(0)
    for scale in torch.rand(50) + 0.01:
        g = torch.randn(64)
        of_x, _ = gradients(with_scale(scale, IntGrid(8)), torch.rand(64) * scale, g)
        assert torch.equal(of_x, g)


@pytest.mark.parametrize("value", [-0.5, 0.0, -1e-30])
def test_it_is_positive_and_has_a_gradient_after_any_step(value: float) -> None:
    quantizer = with_scale(torch.tensor(value))
    x = torch.tensor([0.3, 5.0])
    scale = quantizer.scale(x)
    assert scale == torch.tensor(value).abs().clamp(min=torch.finfo(torch.float32).tiny)
    assert quantizer(x)[1] >= 0
    _, got = gradients(quantizer, x, torch.ones(2))
    _, mirrored = gradients(with_scale(scale.detach()), x, torch.ones(2))
    assert got.isfinite()
    assert got != 0
    assert torch.equal(got, -mirrored if value < 0 else mirrored)


def test_a_scale_that_an_optimizer_moved_far_away_recovers() -> None:
    torch.manual_seed(0)
    x = torch.randn(1000)
    quantizer = Quantizer(IntGrid(4), LearnedScale(7))
    quantizer(x)
    start = (quantizer(x) - x).square().mean().item()
    quantizer.scale.value.data.fill_(-0.01)
    optimizer = torch.optim.SGD(quantizer.parameters(), 0.1)
    for _ in range(300):
        optimizer.zero_grad()
        (quantizer(x) - x).square().sum().div(10).backward()
        optimizer.step()
        assert quantizer.scale(x) > 0
    assert (quantizer(x) - x).square().mean().item() < start


def test_the_first_batch_sets_it_and_no_later_one() -> None:
    scale = LearnedScale(7, (2, 1), axis=0)
    scale.initialize(torch.zeros(2, 3))
    scale.observe(torch.tensor([[1.0, -2, 3], [0.1, 0.2, -0.3]]))
    torch.testing.assert_close(scale.value.detach(), torch.tensor([[4.0], [0.4]]) / math.sqrt(7))
    before, version = scale.value.detach().clone(), scale.value._version
    scale.observe(torch.ones(2, 3))
    assert torch.equal(scale.value, before)
    assert scale.value._version == version
    assert (scale.batches == 2).all()


def test_an_infinite_element_leaves_the_scale_finite() -> None:
    x = torch.tensor([0.3, torch.inf])
    of_x, of_scale = gradients(with_scale(torch.tensor(1.0)), x, torch.ones(2))
    assert of_x.tolist() == [1, 0]
    assert of_scale.item() == pytest.approx((7 - 0.3) / math.sqrt(14))


@pytest.mark.parametrize(
    ("of", "rounding"),
    [("x", round_ste), ("x", round_soft), ("scale", round_ste), ("scale", round_soft), ("scale", round_zero)],
)
def test_second_derivatives_are_refused_by_name(of: str, rounding) -> None:
    quantizer = with_scale(torch.tensor(1.0), rounding=rounding)
    x = V.clone().requires_grad_()
    wanted = x if of == "x" else quantizer.scale.value
    (first,) = torch.autograd.grad(quantizer(x).square().sum(), wanted, create_graph=True)
    with pytest.raises(RuntimeError, match="a quantizer with a learned scale has no second derivative"):
        torch.autograd.grad(first.sum(), x)


def test_a_power_of_two_passes_the_gradient_to_the_scale_within() -> None:
    inner = LearnedScale(7)
    inner.value.data.fill_(0.9)  # rounds to 1
    rounded = Quantizer(FULL, PowerOfTwo(inner)).eval()
    g, x = torch.arange(1.0, 6), (V + 0.45).requires_grad_()  # 7.05 is inside after rounding alone
    of_x, of_value = torch.autograd.grad(rounded(x), (x, inner.value), g)
    expected = gradients(with_scale(torch.tensor(1.0)), V + 0.45, g)
    assert torch.equal(of_x, expected[0])
    assert torch.equal(of_value, expected[1])
    assert rounded(V).tolist() == [-8, -3, 0, 7, 7]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_frozen_scale_stays_under_any_optimizer_also_after_a_reload(optimizer: type) -> None:
    quantizer = Quantizer(IntGrid(4), LearnedScale(7))
    kwargs = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
    steps = optimizer(quantizer.parameters(), lr=0.01, **kwargs)

    def step() -> float:
        steps.zero_grad()
        quantizer(torch.randn(50).requires_grad_()).square().sum().backward()
        steps.step()
        return quantizer.scale.value.item()

    assert step() != step()
    quantizer.freeze()
    assert step() == step()
    again = Quantizer(IntGrid(4), LearnedScale(7))
    again.load_state_dict(quantizer.state_dict())
    assert not again.scale.value.requires_grad
    quantizer.unfreeze()
    assert step() != step()


def test_a_first_batch_of_zeros_does_not_set_the_scale() -> None:
    quantizer = Quantizer(IntGrid(4), LearnedScale(7))
    quantizer(torch.zeros(8))
    assert quantizer.scale.batches.item() == 0
    x = torch.rand(8)
    quantizer(x)
    assert quantizer.scale.value.item() == quantizer.scale.measure(x).item()


def test_a_channel_of_zeros_starts_as_the_mean_of_the_others_and_can_learn() -> None:
    torch.manual_seed(0)
    target = torch.randn(4, 50) / 10
    weight = torch.nn.Parameter(target.clone())
    weight.data[0] = 0
    quantizer = Quantizer(IntGrid(4), LearnedScale(7, (4, 1), axis=0))
    quantizer.scale.initialize(weight.detach())
    started = quantizer.scale.value.detach().clone()
    torch.testing.assert_close(started[0, 0], started[1:].mean())
    assert not quantizer(weight)[0].any()
    assert torch.equal(quantizer.scale.value, started)
    optimizer = torch.optim.Adam([weight, *quantizer.parameters()], 0.005)
    for _ in range(100):
        optimizer.zero_grad()
        (quantizer(weight) - target).square().sum().backward()
        optimizer.step()
    errors = (quantizer(weight) - target).square().mean(1)
    assert len(quantizer.codes(weight)[0].unique()) > 7
    assert errors[0] < 1.5 * errors[1:].max()  # each channel has its own numbers


def test_a_weight_of_zeros_waits_for_one_that_is_not() -> None:
    scale = LearnedScale(7, (2, 1), axis=0)
    scale.initialize(torch.zeros(2, 3))
    scale.observe(torch.zeros(2, 3))
    assert not scale.batches.any()
    assert (scale(torch.zeros(2, 3)) > 0).all()
    scale.observe(torch.tensor([[0.0, 0, 0], [0.1, 0.2, -0.3]]))
    torch.testing.assert_close(scale.value.detach(), torch.full((2, 1), 0.4) / math.sqrt(7))

"""The fused Functions equal the composition of division, rounding, clamp and multiplication."""

import copy

import pytest
import torch
from torch import Tensor

from qat.gradients import round_ste
from qat.quantizers import IntGrid, LearnedScale, ObservedScale, PowerOfTwo, Quantizer, Scale, kernels


def composed(x: Tensor) -> Tensor:
    """A user-defined rounding: the quantizer then composes its functions, which are the reference."""
    return round_ste(x)


def observed(grid: IntGrid) -> Scale:
    return ObservedScale(grid.high, "ema")


def per_channel(grid: IntGrid) -> Scale:
    return ObservedScale(grid.high, "max", (1, 6, 1, 1), axis=1)


def learned(grid: IntGrid) -> Scale:
    return LearnedScale(grid.high)


def learned_per_channel(grid: IntGrid) -> Scale:
    return LearnedScale(grid.high, (1, 6, 1, 1), axis=1)


def frozen(grid: IntGrid) -> Scale:
    scale = LearnedScale(grid.high)
    scale.freeze()
    return scale


def power_of_two(grid: IntGrid) -> Scale:
    return PowerOfTwo(ObservedScale(grid.high, "ema"))


def power_of_two_learned(grid: IntGrid) -> Scale:
    return PowerOfTwo(LearnedScale(grid.high))


SCALES = [
    observed,
    per_channel,
    learned,
    learned_per_channel,
    frozen,
    power_of_two,
    power_of_two_learned,
]
GRIDS = [
    IntGrid(1, signed=False),
    *(IntGrid(bits) for bits in (1, 2, 4, 8, 16)),
    *(IntGrid(bits, midrise=True) for bits in (2, 3, 4)),
]
LAYOUTS = [torch.contiguous_format, torch.channels_last]


def data(dtype: torch.dtype, layout: torch.memory_format) -> Tensor:
    torch.manual_seed(0)
    x = torch.randn(5, 6, 7, 8)
    x[0, 0, 0] = torch.tensor([0.0, -0.0, 0.125, -0.125, 0.375, -0.375, 1.0, -1.0])  # ties of many scales
    return x.to(dtype).contiguous(memory_format=layout)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("scale", SCALES)
def test_it_equals_the_composition_of_its_functions(scale, grid: IntGrid, relu: bool) -> None:
    fused = Quantizer(grid, scale(grid), round_ste)
    twin = copy.deepcopy(fused)
    twin.rounding = composed
    for dtype in [torch.float32, torch.bfloat16, torch.float64]:
        for layout in LAYOUTS:
            x, g = data(dtype, layout), torch.randn(5, 6, 7, 8).to(dtype)
            a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
            y, z = fused(a, relu), twin(b, relu)
            assert y.dtype == dtype
            assert y.is_contiguous(memory_format=layout)
            assert torch.equal(y, z)
            y.backward(g)
            z.backward(g)
            assert a.grad is not None
            assert b.grad is not None
            assert torch.equal(a.grad, b.grad)
    for (name, p), q in zip(fused.named_parameters(), twin.parameters(), strict=True):
        if p.grad is not None:
            # One sum instead of two: the order of float32 additions differs.
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-4, msg=name)
    for p, q in zip(fused.buffers(), twin.buffers(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("scale", [observed, learned, frozen])
def test_pieces_give_the_same_as_the_whole(scale, relu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = IntGrid(4)
    results = []
    for chunk in (kernels.CHUNK, 100):  # 1,680 elements: the last piece is shorter
        monkeypatch.setattr(kernels, "CHUNK", chunk)
        for layout in LAYOUTS:
            quantizer = Quantizer(grid, scale(grid))
            x = data(torch.float32, layout).requires_grad_()
            y = quantizer(x, relu)
            y.backward(torch.linspace(-1, 1, x.numel()).reshape(x.shape).contiguous(memory_format=layout))
            results.append((y, x.grad, next(quantizer.parameters(), torch.zeros(())).grad))
    for (y, grad_x, grad_scale), (other, other_x, other_scale) in zip(results[:2], results[2:], strict=True):
        assert torch.equal(y, other)
        assert torch.equal(grad_x, other_x)
        if scale is learned:
            torch.testing.assert_close(
                other_scale, grad_scale
            )  # a sum of sums: float32 adds in another order


@pytest.mark.parametrize("scale", [observed, learned])
def test_after_a_relu_only_the_mask_or_the_input_is_kept(scale) -> None:
    grid = IntGrid(4, signed=False)
    x = torch.randn(10, 10, requires_grad=True)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        Quantizer(grid, scale(grid))(x, relu=True)
    large = [t for t in saved if t.numel() == x.numel()]
    if scale is observed:
        assert [t.dtype for t in large] == [torch.bool]
    else:
        assert [t.data_ptr() for t in large] == [x.data_ptr()]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("scale", SCALES)
def test_nan_and_infinities_are_treated_as_in_the_composition(scale, relu: bool) -> None:
    grid = IntGrid(4, signed=not relu)
    fused = Quantizer(grid, scale(grid)).eval()
    fused.scale.initialize(torch.randn(2, 6, 1, 1))
    twin = copy.deepcopy(fused)
    twin.rounding = composed
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0, -1.0, 0.0]).reshape(1, 6, 1, 1)
    fused.scale.freeze()
    twin.scale.freeze()
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, z = fused(a, relu), twin(b, relu)
    assert torch.equal(y.nan_to_num(7.5), z.nan_to_num(7.5))
    y.backward(torch.ones_like(y))
    z.backward(torch.ones_like(z))
    assert a.grad is not None
    assert b.grad is not None
    assert torch.equal(a.grad, b.grad)


@pytest.mark.parametrize("count", [100, kernels.CHUNK + 100])
def test_second_derivatives_of_a_learned_scale_are_refused_at_any_size(count: int) -> None:
    x = torch.rand(count, requires_grad=True)
    y = Quantizer(IntGrid(4), LearnedScale(7))(x)
    (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="a quantizer with a learned scale has no second derivative"):
        g.sum().backward()


@pytest.mark.parametrize("training", [True, False])
def test_a_dynamic_scale_is_measured_after_the_relu(training: bool) -> None:
    quantizer = Quantizer(IntGrid(2, signed=False), ObservedScale(3, "max")).train(training)
    x = torch.tensor([-9.0, 1.0, 2.0, 3.0])
    assert torch.equal(quantizer(x, relu=True), quantizer(x.relu()))
    assert quantizer(x, relu=True).tolist() == [0, 1, 2, 3]


def test_an_infinite_gradient_outside_the_grid_does_not_become_nan() -> None:
    x = torch.tensor([9.0, 0.1], requires_grad=True)
    quantizer = Quantizer(IntGrid(2), ObservedScale(1, "ema")).eval()
    quantizer(x).backward(torch.tensor([float("inf"), 1.0]))
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("rounding", [round_ste, composed])
def test_zero_has_no_sign(rounding) -> None:
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "ema"), rounding).eval()
    y = quantizer(torch.tensor([-0.0, -0.3, 0.0]))
    assert not torch.signbit(y).any()

"""The quantizer: values, codes, gradients and state, against worked values and an independent reference."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from qat.gradients import round_ste, round_zero
from qat.quantizers import IntGrid, ObservedScale, Quantizer, weight_quantizer


def with_scale(grid: IntGrid, scale: float | Tensor, rounding=round_ste) -> Quantizer:
    """A quantizer in eval mode whose scale is set by hand."""
    scale = torch.as_tensor(scale, dtype=torch.float32)
    quantizer = Quantizer(grid, ObservedScale(grid.high, "ema", tuple(scale.shape)), rounding)
    quantizer.scale.value.copy_(scale)
    return quantizer.eval()


def gradient(quantizer: Quantizer, x: Tensor, g: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    quantizer(x).backward(g)
    assert x.grad is not None
    return x.grad


def test_gradient_passes_on_both_end_codes() -> None:
    x = torch.tensor([-20, -8.4, -8, -3.2, 7, 7.4, 7.6, 20])
    quantizer = with_scale(IntGrid(4, narrow=False), 1.0)
    assert gradient(quantizer, x, torch.ones(8)).tolist() == [0, 1, 1, 1, 1, 1, 0, 0]


def test_ties_go_to_even() -> None:
    x = torch.tensor([0.25, 0.75, 1.25, 1.75, -0.25, -0.75, -1.25])
    assert with_scale(IntGrid(4), 0.5).codes(x).tolist() == [0, 2, 2, 4, 0, -2, -2]


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7, 8, 16])
def test_codes_and_values_equal_a_numpy_reference(bits: int, signed: bool) -> None:
    rng = np.random.default_rng(bits)
    grid = IntGrid(bits, signed)
    for scale in rng.uniform(1e-3, 2, 5).astype(np.float32):
        ties = (np.arange(-20, 20, dtype=np.float32) + np.float32(0.5)) * scale
        x = np.concatenate([rng.normal(0, 3, 500).astype(np.float32), ties])
        codes = np.clip(np.rint(x / scale), grid.low, grid.high)
        quantizer = with_scale(grid, float(scale))
        assert quantizer.codes(torch.from_numpy(x)).dtype == torch.int32
        assert np.array_equal(quantizer.codes(torch.from_numpy(x)).numpy(), codes)
        assert np.array_equal(quantizer(torch.from_numpy(x)).numpy(), codes * scale)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 7, 8])
def test_every_level_occurs_on_uniform_data(bits: int, signed: bool) -> None:
    x = torch.linspace(-1.0 if signed else 0.0, 1.0, 10_001)
    grid = IntGrid(bits, signed)
    quantizer = Quantizer(grid, ObservedScale(grid.high, "ema"))
    y = quantizer(x)
    assert len(y.unique()) == grid.levels
    assert len(quantizer.codes(x).unique()) == grid.levels
    assert y.max() == 1.0


@pytest.mark.parametrize("narrow", [True, False])
def test_gradient_equals_torch_fake_quantize(narrow: bool) -> None:
    torch.manual_seed(0)
    x, g, scale = 4 * torch.randn(3, 5, 7), torch.randn(3, 5, 7), 0.37
    grid = IntGrid(4, narrow=narrow)
    theirs = x.clone().requires_grad_()
    torch.fake_quantize_per_tensor_affine(theirs, scale, 0, grid.low, grid.high).backward(g)
    assert theirs.grad is not None
    assert torch.equal(gradient(with_scale(grid, scale), x, g), theirs.grad)


def test_the_gradient_is_g_to_the_last_bit_at_any_scale() -> None:
    torch.manual_seed(0)
    for scale in torch.rand(50) + 0.01:
        g = torch.randn(64)
        assert torch.equal(gradient(with_scale(IntGrid(8), scale), torch.rand(64) * scale, g), g)


def test_true_gradient_is_exactly_zero() -> None:
    quantizer = with_scale(IntGrid(4), 0.1, round_zero)
    assert torch.equal(gradient(quantizer, torch.randn(50), torch.randn(50)), torch.zeros(50))


def test_one_signed_bit() -> None:
    quantizer = with_scale(IntGrid(1), 0.5)
    x = torch.tensor([-9.0, -0.1, 0.0, 0.1, 0.6, 9.0])
    assert quantizer.codes(x).tolist() == [-1, -1, 1, 1, 1, 1]
    assert quantizer(x).tolist() == [-0.5, -0.5, 0.5, 0.5, 0.5, 0.5]
    assert gradient(quantizer, x, torch.full((6,), 3.0)).tolist() == [0, 3, 3, 3, 3, 0]


def test_zero_is_exactly_zero() -> None:
    for bits in range(2, 9):
        assert with_scale(IntGrid(bits), 0.3).forward(torch.zeros(3)).tolist() == [0, 0, 0]


def test_a_user_defined_rounding() -> None:
    quantizer = with_scale(IntGrid(4), 1.0, torch.floor)
    assert quantizer(torch.tensor([0.9, -0.1])).tolist() == [0, -1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_codes_are_computed_in_float32_at_least(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(5000).to(dtype)
    quantizer = with_scale(IntGrid(8), 0.0317)
    upcast = x.to(torch.promote_types(dtype, torch.float32))
    codes = torch.round(upcast / torch.tensor(0.0317)).clamp(-127, 127)
    assert torch.equal(quantizer.codes(x), codes.int())
    assert quantizer(x).dtype == dtype
    assert torch.equal(quantizer(x), (codes * torch.tensor(0.0317)).to(dtype))
    assert quantizer.scale.value.dtype == torch.float32


def test_memory_format_is_kept() -> None:
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    assert with_scale(IntGrid(4), 0.1)(x).is_contiguous(memory_format=torch.channels_last)
    assert with_scale(IntGrid(4), torch.ones(1, 3, 1, 1))(x).is_contiguous(memory_format=torch.channels_last)


def test_infinities_are_clamped() -> None:
    x = torch.tensor([float("inf"), -float("inf")])
    assert with_scale(IntGrid(4), 0.5)(x).tolist() == [3.5, -3.5]


def test_copies_and_pickles_agree_before_and_after_a_step() -> None:
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "ema"))
    for _ in range(2):
        twins = [copy.deepcopy(quantizer), pickle.loads(pickle.dumps(quantizer))]
        x = torch.randn(10)
        y = quantizer(x)
        for twin in twins:
            assert torch.equal(twin(x), y)
            assert all(torch.equal(a, b) for a, b in zip(twin.buffers(), quantizer.buffers(), strict=True))


def test_the_graph_keeps_only_the_mask() -> None:
    saved: list[Tensor] = []
    x = torch.randn(100, requires_grad=True)
    quantizer = with_scale(IntGrid(4), 0.5)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        quantizer(x)
    assert [t.dtype for t in saved] == [torch.bool]


def test_codes_leave_every_mode_as_it_was_also_after_an_error() -> None:
    quantizer = weight_quantizer(torch.ones(2, 3), 4, axis=0).train()
    quantizer.scale.eval()
    quantizer.codes(torch.ones(2, 3))
    assert (quantizer.training, quantizer.scale.training) == (True, False)
    with pytest.raises(ValueError, match="must broadcast against x"):
        quantizer.codes(torch.ones(5, 3, 2))
    quantizer.rounding = lambda x: x.nothing
    with pytest.raises(AttributeError, match="nothing"):
        quantizer.codes(torch.ones(2, 3))
    assert (quantizer.training, quantizer.scale.training) == (True, False)

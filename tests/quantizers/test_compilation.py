"""The compiled kernels against the eager ones; one compilation for all tests, on the real compiler."""

import copy
import logging
import shutil

import pytest
import torch
from torch import Tensor

from qat.quantizers import (
    IntGrid,
    LearnedScale,
    ObservedScale,
    Quantizer,
    build_kernels,
    compilation,
    compile_kernels,
    kernels,
    use_eager_kernels,
)

LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    if not any(map(shutil.which, ("g++", "clang++", "cl"))):
        pytest.skip("there is no C++ compiler")
    assert build_kernels()


def data(shape: tuple[int, ...], dtype: torch.dtype, layout: torch.memory_format) -> Tensor:
    torch.manual_seed(sum(shape))
    x = 2 * torch.randn(shape)
    # Ties of the scales below, both zeros, NaN, infinities and a large number.
    special = [0.125, -0.125, 0.375, -0.625, 0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e30]
    x.view(-1)[: len(special)] = torch.tensor(special)
    return x.to(dtype).contiguous(memory_format=layout)


def same(a: Tensor, b: Tensor) -> bool:
    """Equal to the last bit, including the signs of zeros and NaN."""
    return (
        a.dtype == b.dtype
        and a.stride() == b.stride()
        and torch.equal(a.isnan(), b.isnan())
        and torch.equal(a.nan_to_num(), b.nan_to_num())
        and torch.equal(a.signbit() & ~a.isnan(), b.signbit() & ~b.isnan())
    )


SCALES = [torch.tensor(0.25), torch.tensor(0.37), 0.1 + torch.arange(16.0).reshape(16, 1, 1, 1) / 16]
EVEN = [(-7, 7), (0, 15), (-1, 1), (0, 1), (-127, 127), (0, 255)]
GRIDS = [*((*bounds, False) for bounds in EVEN), (-2, 1, True)]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", SCALES, ids=["power of two", "any", "per channel"])
def test_compiled_equals_eager(scale: Tensor, dtype: torch.dtype, relu: bool) -> None:
    if scale.numel() > 1 and dtype == torch.bfloat16:
        pytest.skip("one more compilation of the same code")
    for layout in LAYOUTS:
        # The size of the second is no multiple of a vector or a chunk.
        for shape in [(16, 8, 16, 16), (16, 3, 37, 41)]:
            x, g = data(shape, dtype, layout), data(shape[::-1], dtype, torch.contiguous_format)
            g = g.reshape(-1).as_strided(x.shape, x.stride())
            assert kernels._matrix_rows(x, scale) == scale.numel()
            for low, high, odd in GRIDS:
                if odd and relu:  # midrise grids are of weights
                    continue
                low = max(low, 0) if relu else low
                for clamps_first in (False, True):
                    args = (x, scale, low, high, odd, clamps_first, relu)
                    value, mask = kernels.forward(*args, compiled=True)
                    expected, expected_mask = kernels.forward(*args, compiled=False)
                    assert same(value, expected)
                    assert torch.equal(mask, expected_mask)
                    assert same(kernels.backward(g, mask, True), kernels.backward(g, mask, False))
                assert same(kernels.value(*args[:5], True), kernels.value(*args[:5], False))


@pytest.mark.parametrize(("odd", "relu"), [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("scale", SCALES, ids=["power of two", "any", "per channel"])
def test_learned_gradients(scale: Tensor, odd: bool, relu: bool) -> None:
    for layout in LAYOUTS:
        x = data((16, 8, 16, 16), torch.float32, layout).nan_to_num(0.3)
        g = torch.randn(x.shape).contiguous(memory_format=layout)
        args = (g, x, scale, 0 if relu else -7, 7, odd, relu)
        grad_x, grad_scale = kernels.learned_backward(*args, compiled=True)
        expected, expected_scale = kernels.learned_backward(*args, compiled=False)
        assert same(grad_x, expected)
        # The order of 32,768 float32 additions differs.
        torch.testing.assert_close(grad_scale, expected_scale, rtol=1e-4, atol=1e-2)
        assert grad_scale.shape == scale.shape


def test_unsupported_tensors_are_eager() -> None:
    scale = torch.tensor(0.3)
    large = torch.randn(64, 1024)
    assert kernels._matrix_rows(large, scale) == 1
    assert kernels._matrix_rows(large[:, ::2], scale) is None
    assert kernels._matrix_rows(large[:4], scale) is None
    assert kernels._matrix_rows(large.double(), scale) is None
    assert kernels._matrix_rows(large, torch.full((1, 1024), 0.3)) is None
    half, whole = (kernels.value(x, scale, -7, 7, False, True) for x in (large[:, ::2], large))
    assert torch.equal(half, whole[:, ::2])


def kernels_used_by(quantizer: Quantizer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The fused passes of one step on a large tensor."""
    used: list[str] = []
    fused = kernels.fused
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "fused", lambda kernel: used.append(kernel.__name__) or fused(kernel))
        x = torch.randn(64, 1024, requires_grad=True)
        quantizer(x, relu=True).backward(torch.randn(64, 1024))
    return used


FUSED_PASSES = {
    ObservedScale: ["_forward_kernel", "masked_bitwise"],
    LearnedScale: ["_value_kernel", "_learned_kernel"],
}


@pytest.mark.parametrize("scale", [ObservedScale(15, "ema"), LearnedScale(15)])
def test_only_the_quantizers_of_the_given_model_and_its_copies_use_them(
    scale, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, other = (Quantizer(IntGrid(4, signed=False), copy.deepcopy(scale)) for _ in range(2))
    assert compile_kernels(model)
    assert kernels_used_by(model, monkeypatch) == FUSED_PASSES[type(scale)]
    assert kernels_used_by(copy.deepcopy(model), monkeypatch) == FUSED_PASSES[type(scale)]
    assert kernels_used_by(other, monkeypatch) == []
    other.load_state_dict(model.state_dict())
    assert kernels_used_by(other, monkeypatch) == []
    use_eager_kernels(model)
    assert kernels_used_by(model, monkeypatch) == []


def test_the_backward_takes_the_path_of_its_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Quantizer(IntGrid(4), LearnedScale(7))
    assert compile_kernels(model)
    x = torch.randn(64, 1024, requires_grad=True)
    y = model(x)
    use_eager_kernels(model)
    monkeypatch.setattr(kernels, "_pieces", None)  # the eager path would fail
    y.backward(torch.randn(64, 1024))


def test_the_environment_forbids_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = Quantizer(IntGrid(4), LearnedScale(7))
    assert compile_kernels(model)
    monkeypatch.setenv("QAT_COMPILE", "0")
    with caplog.at_level(logging.INFO, "qat"):
        assert compile_kernels(model) is False
    assert caplog.messages == ["quantizers run eagerly: QAT_COMPILE=0"]
    assert kernels_used_by(model, monkeypatch) == []


def test_without_a_compiler_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no compiler found\nand much more")

    model = Quantizer(IntGrid(4), LearnedScale(7))
    monkeypatch.setattr(compilation, "_built", set())
    monkeypatch.setattr(kernels, "warm_ups", lambda device, odd: [fails])
    assert compile_kernels(model) is False
    assert caplog.messages == ["quantizers run eagerly: compiling failed (no compiler found)"]
    assert model.compiled_on is None

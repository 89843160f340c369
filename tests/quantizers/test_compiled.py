"""The compiled kernels against the eager ones; one compilation for all tests, on the real compiler."""

import logging
import shutil
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from qat.quantizers import IntGrid, LearnedScale, ObservedScale, Quantizer, compile_kernels, compiled, kernels

LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.fixture(scope="module", autouse=True)
def in_use() -> Iterator[None]:
    if not any(map(shutil.which, ("g++", "clang++", "cl"))):
        pytest.skip("there is no C++ compiler")
    assert compile_kernels()
    yield
    compiled._in_use.clear()


def data(shape: tuple[int, ...], dtype: torch.dtype, layout: torch.memory_format) -> Tensor:
    torch.manual_seed(sum(shape))
    x = 2 * torch.randn(shape)
    # Ties of the scales below, both zeros, what is no number, and ends.
    special = [0.125, -0.125, 0.375, -0.625, 0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e30]
    x.view(-1)[: len(special)] = torch.tensor(special)
    return x.to(dtype).contiguous(memory_format=layout)


def eagerly(function, *args):
    with compiled.eagerly():
        return function(*args)


def same(a: Tensor, b: Tensor) -> bool:
    """Equal to the last bit, signs of zeros and what is no number included."""
    return (
        a.dtype == b.dtype
        and a.stride() == b.stride()
        and torch.equal(a.isnan(), b.isnan())
        and torch.equal(a.nan_to_num(), b.nan_to_num())
        and torch.equal(a.signbit() & ~a.isnan(), b.signbit() & ~b.isnan())
    )


SCALES = [torch.tensor(0.25), torch.tensor(0.37), 0.1 + torch.arange(16.0).reshape(16, 1, 1, 1) / 16]
GRIDS = [(-7, 7), (0, 15), (-1, 1), (0, 1), (-127, 127), (0, 255)]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", SCALES, ids=["power of two", "any", "per channel"])
def test_compiled_equals_eager(scale: Tensor, dtype: torch.dtype, relu: bool) -> None:
    if scale.numel() > 1 and dtype == torch.bfloat16:
        pytest.skip("the same code compiled once more")
    for layout in LAYOUTS:
        # The second is no whole number of vectors or chunks.
        for shape in [(16, 8, 16, 16), (16, 3, 37, 41)]:
            x, g = data(shape, dtype, layout), data(shape[::-1], dtype, torch.contiguous_format)
            g = g.reshape(-1).as_strided(x.shape, x.stride())
            assert kernels._rows(x, scale) == scale.numel()
            for low, high in GRIDS:
                low = max(low, 0) if relu else low
                for clamps_first in (False, True):
                    args = (x, scale, low, high, clamps_first, relu)
                    value, inside = kernels.forward(*args)
                    expected, passes = eagerly(kernels.forward, *args)
                    assert same(value, expected)
                    assert torch.equal(inside, passes)
                    assert same(kernels.backward(g, inside), eagerly(kernels.backward, g, inside))
                assert same(kernels.value(*args[:4]), eagerly(kernels.value, *args[:4]))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("scale", SCALES, ids=["power of two", "any", "per channel"])
def test_learned_gradients(scale: Tensor, relu: bool) -> None:
    for layout in LAYOUTS:
        x = data((16, 8, 16, 16), torch.float32, layout).nan_to_num(0.3)
        g = torch.randn(x.shape).contiguous(memory_format=layout)
        args = (g, x, scale, 0 if relu else -7, 7, relu)
        of_x, of_scale = kernels.learned_backward(*args)
        expected, share = eagerly(kernels.learned_backward, *args)
        assert same(of_x, expected)
        # The order of 32,768 float32 additions differs.
        torch.testing.assert_close(of_scale, share, rtol=1e-4, atol=1e-2)
        assert of_scale.shape == scale.shape


def test_what_they_do_not_take_is_eager() -> None:
    scale = torch.tensor(0.3)
    large = torch.randn(64, 1024)
    assert kernels._rows(large, scale) == 1
    assert kernels._rows(large[:, ::2], scale) is None
    assert kernels._rows(large[:4], scale) is None
    assert kernels._rows(large.double(), scale) is None
    assert kernels._rows(large, torch.full((1, 1024), 0.3)) is None
    assert torch.equal(kernels.value(large[:, ::2], scale, -7, 7), kernels.value(large, scale, -7, 7)[:, ::2])


@pytest.mark.parametrize("scale", [ObservedScale(15, "ema"), LearnedScale(15)])
def test_a_quantizer_goes_through_them(scale, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    kernel = compiled.kernel
    monkeypatch.setattr(compiled, "kernel", lambda f: used.append(f.__name__) or kernel(f))
    x = torch.randn(64, 1024, requires_grad=True)
    Quantizer(IntGrid(4, signed=False), scale)(x, relu=True).backward(torch.randn(64, 1024))
    observed = isinstance(scale, ObservedScale)
    assert used == (["forward", "with_bits"] if observed else ["quantized", "learned"])


def test_the_environment_forbids_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("QAT_COMPILE", "0")
    with caplog.at_level(logging.INFO, "qat"):
        assert compile_kernels() is False
    assert caplog.messages == ["quantizers run eagerly: QAT_COMPILE=0"]


def test_without_a_compiler_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no compiler found\nand much more")

    monkeypatch.setattr(compiled, "prepare", fails)
    assert compile_kernels() is False
    assert caplog.messages == ["quantizers run eagerly: compiling failed (no compiler found)"]

"""Which path is taken is asked of the kernels."""

import os

import pytest
import torch

from qat import Quantization, quantize
from qat.models import SmallCNN
from qat.quantizers import kernels
from qat.studies.benchmark.paths import path_of, paths_in, without_compiler


def large_ones(x: torch.Tensor) -> str:
    return "compiled" if x.numel() > 20_000 and os.environ.get("QAT_COMPILE") != "0" else "eager"


def test_without_compiler_puts_the_variable_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (None, "1"):
        monkeypatch.delenv("QAT_COMPILE", raising=False)
        if before:
            monkeypatch.setenv("QAT_COMPILE", before)
        with without_compiler():
            assert os.environ["QAT_COMPILE"] == "0"
        assert os.environ.get("QAT_COMPILE") == before


def test_the_kernels_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "path", large_ones, raising=False)
    x = torch.rand(4, 8192)
    assert path_of(x) == "compiled"
    with without_compiler():
        assert path_of(x) == "eager"


def test_the_quantizers_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(4, 1, 28, 28)
    model = quantize(SmallCNN(), Quantization(), images).train()
    # The images, 5 weights (the largest of 64 x 64 x 3 x 3) and the inputs of 4 layers (the first of
    # 4 x 16 x 28 x 28, the second of 4 x 32 x 14 x 14).
    monkeypatch.setattr(kernels, "path", large_ones, raising=False)
    assert paths_in(model, images) == "3/10"
    monkeypatch.setattr(kernels, "path", lambda x: "compiled", raising=False)
    assert paths_in(model, images) == "compiled"

"""Which path is taken is asked of the kernels."""

import pytest
import torch

from qat import Quantization, quantize
from qat.measure.benchmark.paths import path_of, paths_in
from qat.models import SmallCNN
from qat.quantizers import compiled
from qat.quantizers.compiled import eagerly


def test_of_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_in_use", {"cpu"})
    assert path_of(torch.rand(compiled.SMALL)) == "compiled"
    assert path_of(torch.rand(compiled.SMALL - 1)) == "eager"
    with eagerly():
        assert path_of(torch.rand(compiled.SMALL)) == "eager"
    assert path_of(torch.rand(compiled.SMALL)) == "compiled"


def test_of_the_quantizers_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(4, 1, 28, 28)
    model = quantize(SmallCNN(), Quantization(), images).train()
    assert paths_in(model, images) == "eager"
    # The images, 5 weights (the largest of 64 x 64 x 3 x 3) and the inputs of 4 layers (the first of
    # 4 x 16 x 28 x 28, the second of 4 x 32 x 14 x 14).
    monkeypatch.setattr(compiled, "takes", lambda x: x.numel() > 20_000)
    with torch.compiler.set_stance("force_eager"):  # nothing is compiled here: it is asked alone
        assert paths_in(model, images) == "3/10"

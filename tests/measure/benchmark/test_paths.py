"""Which path is taken is asked of the quantizers."""

import pytest
import torch

from qat import Quantization, quantize
from qat.measure.benchmark.paths import path_of, paths_in
from qat.models import SmallCNN
from qat.quantizers import Quantizer, activation_quantizer, kernels, use_eager_kernels


def test_of_a_tensor() -> None:
    quantizer = activation_quantizer(torch.zeros(1), 4, signed=True)
    large = torch.rand(kernels.COMPILED_MIN_SIZE)
    assert path_of(quantizer, large) == "eager"
    quantizer.compiled_on = "cpu"
    assert path_of(quantizer, large) == "compiled"
    assert path_of(quantizer, large[1:]) == "eager"
    use_eager_kernels(quantizer)
    assert path_of(quantizer, large) == "eager"


def test_of_the_quantizers_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(4, 1, 28, 28)
    model = quantize(SmallCNN(), Quantization(), images).train()
    assert paths_in(model, images) == "eager"
    # The images, 5 weights (the largest of 64 x 64 x 3 x 3) and the inputs of 4 layers (the first of
    # 4 x 16 x 28 x 28, the second of 4 x 32 x 14 x 14).
    monkeypatch.setattr(Quantizer, "uses_compiled_kernels", lambda self, x: x.numel() > 20_000)
    assert paths_in(model, images) == "3/10"

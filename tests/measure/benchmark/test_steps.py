"""Every way to train that is timed trains, and starts from the same weights."""

from importlib.util import find_spec

import pytest
import torch

from qat.measure.benchmark import steps

CPU = torch.device("cpu")
EAGER = [name for name, mode in steps.MODES.items() if not mode.compiled]
COMPILED = [name for name, mode in steps.MODES.items() if mode.compiled]


def losses(name: str, model: str = "small_cnn", count: int = 3) -> list[float]:
    candidate = next(c for c in steps.candidates(model, 4, CPU) if c.name == name)
    if candidate.missing:
        pytest.skip(candidate.missing)
    call = candidate.build().call
    return [call().item() for _ in range(count)]


SLOW = pytest.param("torchao PT2E, 8 bits", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [*EAGER, "torch.ao FX", "Brevitas", "Brevitas, first 300", SLOW])
def test_it_trains(name: str) -> None:
    # Not that it falls: at 4 bits, in three steps, it need not.
    assert len(set(losses(name))) == 3


@pytest.mark.parametrize("model", ["small_cnn", "resnet8"])
def test_modes_that_must_agree(model: str) -> None:
    plain = losses(steps.OURS, model, 2)
    for mode in ("packed", "packed, checkpointed", "checkpointed", "QAT_COMPILE=0"):
        assert losses(f"{steps.OURS}, {mode}", model, 2) == plain
    assert losses(steps.FLOAT, model, 2) != plain


def test_channels_last_reaches_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(steps, "training_step", lambda model, images, *_: seen.append(images))
    images, targets = steps.random_batch("resnet8", 4, CPU)
    steps.train_in(steps.MODES["float, channels_last"], "resnet8", images, targets)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(seen[0], images)


@pytest.mark.skipif(find_spec("brevitas") is None, reason="brevitas is not installed: extra bench")
@pytest.mark.parametrize("model", list(steps.SHAPES))
def test_brevitas_quantizes_what_we_quantize(model: str) -> None:
    from brevitas import nn as qnn

    from qat import quantize
    from qat.measure.benchmark import peer_brevitas
    from qat.models import MODELS
    from qat.quantizers import Quantizer

    network = peer_brevitas.network(MODELS[model](steps.SHAPES[model]), 4, peer_brevitas.LEARNS)
    layers = [m for m in network.modules() if isinstance(m, qnn.QuantConv2d | qnn.QuantLinear)]
    theirs = sum(layer.weight_quant.is_quant_enabled + layer.input_quant.is_quant_enabled for layer in layers)
    theirs += sum(isinstance(m, qnn.QuantReLU) for m in network.modules())
    ours = quantize(MODELS[model](steps.SHAPES[model]), steps.W4A4, torch.rand(2, *steps.SHAPES[model]))
    assert theirs == sum(isinstance(m, Quantizer) for m in ours.modules())


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_model_trains(name: str) -> None:
    assert len(set(losses(name))) == 3

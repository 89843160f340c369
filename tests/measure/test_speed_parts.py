"""Every way to train that is timed trains, and starts from the same weights."""

from importlib.util import find_spec

import pytest
import torch

from qat.measure import speed_parts
from qat.measure.modes import FLOAT, MODES, QAT
from qat.measure.speed_parts import IMAGES, SpeedOptions, run_profile, step_candidates

EAGER = [name for name, mode in MODES.items() if not mode.compiled]
COMPILED = [name for name, mode in MODES.items() if mode.compiled]


def test_the_globs_choose_candidates() -> None:
    assert SpeedOptions(only=("x *", "float")).names() == {"x * 2, g * 2", "float"}
    assert {*MODES, *speed_parts.PEERS} < SpeedOptions().names()


def test_profile_takes_the_last_model() -> None:
    found = run_profile(SpeedOptions(models=("resnet8", "small_cnn"), batch_size=2, rounds=1))
    assert [row["name"] for row in found.results] == ["float", "qat", "qat, learned scales"]
    assert "small_cnn" in found.tables[0].title


def losses(name: str, model: str = "small_cnn", count: int = 3) -> list[float]:
    candidate = next(c for c in step_candidates(SpeedOptions(batch_size=4).workload(model)) if c.name == name)
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
    plain = losses(QAT, model, 2)
    for mode in ("packed", "packed, checkpointed", "checkpointed", "QAT_COMPILE=0"):
        assert losses(f"{QAT}, {mode}", model, 2) == plain
    assert losses(FLOAT, model, 2) != plain


@pytest.mark.skipif(find_spec("brevitas") is None, reason="brevitas is not installed: extra bench")
@pytest.mark.parametrize("model", list(IMAGES))
def test_brevitas_quantizes_what_we_quantize(model: str) -> None:
    from brevitas import nn as qnn

    from qat import Quantization, quantize
    from qat.measure import peer_brevitas
    from qat.models import MODELS
    from qat.quantizers import Quantizer

    network = peer_brevitas.network(peer_brevitas.LEARNS, MODELS[model](IMAGES[model]), torch.empty(0))
    layers = [m for m in network.modules() if isinstance(m, qnn.QuantConv2d | qnn.QuantLinear)]
    theirs = sum(layer.weight_quant.is_quant_enabled + layer.input_quant.is_quant_enabled for layer in layers)
    theirs += sum(isinstance(m, qnn.QuantReLU) for m in network.modules())
    ours = quantize(MODELS[model](IMAGES[model]), Quantization(), torch.rand(2, *IMAGES[model]))
    assert theirs == sum(isinstance(m, Quantizer) for m in ours.modules())


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_model_trains(name: str) -> None:
    assert len(set(losses(name))) == 3

"""What is measured is what was asked for."""

import pytest
import torch
from torch import nn

from qat.measure.memory.case import Case
from qat.measure.memory.modes import BOTH, MODES
from qat.memory import Checkpointed
from qat.quantizers import LearnedScale, Quantizer


class Plain(nn.Sequential):
    """A network without a stem or blocks, as somebody else may name them."""

    def __init__(self, input_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(int(torch.Size(input_shape).numel()), classes))


PLAIN = f"{__name__}.Plain"


@pytest.mark.parametrize("name", MODES)
def test_a_mode_is_what_its_flags_say(name: str) -> None:
    model, mode = Case("resnet8", bits=2, scale="learned").build(MODES[name]), MODES[name]
    quantizers = [m for m in model.modules() if isinstance(m, Quantizer)]
    assert bool(quantizers) == mode.quantized
    assert all(isinstance(q.scale, LearnedScale) for q in quantizers)
    assert {q.grid.bits for q in quantizers} <= {2, 8}
    blocks = [model.stem, *model.blocks]
    assert [isinstance(block, Checkpointed) for block in blocks] == [mode.checkpointed] * 4
    assert model.training


def test_all_modes_start_from_the_same_weights() -> None:
    states = [Case("resnet8").build(mode).state_dict() for mode in MODES.values()]
    for state in states[1:]:
        assert all(torch.equal(state[key], states[0][key]) for key in states[0] if "quantizer" not in key)


def test_blocks_may_be_named() -> None:
    model = Case("resnet8", checkpoint=["blocks.1"]).build(MODES[BOTH])
    names = [name for name, module in model.named_modules() if isinstance(module, Checkpointed)]
    assert names == ["blocks.1"]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"batch": 1}, "batch must be at least 2, which BatchNorm needs; got 1"),
        ({"bits": 9}, "bits must be one of the integers 1, 2, 3, 4, 5, 6, 7, 8, 16; got 9"),
        ({"image": (3, 32)}, "image must be channels, height and width, as in 3 32 32; got 3 32"),
        ({"image": (3, 0, 32)}, "image must be channels, height and width, as in 3 32 32; got 3 0 32"),
        ({"model": "resnet9"}, "unknown model 'resnet9'; nearest: "),
        ({"checkpoint": ["block.*"]}, r"checkpoint pattern 'block\.\*' matches nothing"),
        ({"model": PLAIN}, f"checkpoint must name the blocks of {PLAIN}, which has neither stem nor blocks"),
    ],
)
def test_bad_cases(case: dict, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qat.training.network.import_module", lambda _: __import__("sys").modules[__name__])
    with pytest.raises(ValueError, match=message):
        Case(**case).build(MODES[BOTH])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_where_there_is_none() -> None:
    with pytest.raises(ValueError, match="device must be cpu where torch finds no CUDA, got cuda"):
        Case(device="cuda")

"""The networks and batches that are measured."""

import pytest
import torch
from torch import nn

from qat.measure.modes import MODES, PACKED_CHECKPOINTED
from qat.measure.workload import Workload
from qat.memory import Checkpointed
from qat.models import MODELS
from qat.quantizers import LearnedScale, Quantizer


class Plain(nn.Sequential):
    """A network without a stem or blocks, as in a network of a user."""

    def __init__(self, input_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(int(torch.Size(input_shape).numel()), classes))


PLAIN = f"{__name__}.Plain"


@pytest.mark.parametrize("name", MODES)
def test_a_mode_is_what_its_flags_say(name: str) -> None:
    model, mode = Workload("resnet8", bits=2, scale="learned").build(MODES[name]), MODES[name]
    quantizers = [m for m in model.modules() if isinstance(m, Quantizer)]
    assert bool(quantizers) == mode.quantized
    assert [isinstance(q.scale, LearnedScale) for q in quantizers] == [q.grid.bits == 2 for q in quantizers]
    assert {q.grid.bits for q in quantizers} <= {2, 8}
    last = MODES[name].channels_last
    assert model.stem[0].weight.is_contiguous(memory_format=torch.channels_last) == last
    blocks = [model.stem, *model.blocks]
    assert [isinstance(block, Checkpointed) for block in blocks] == [mode.checkpointed] * 4
    assert model.training


def test_all_modes_start_from_the_same_weights() -> None:
    states = [Workload("resnet8").build(mode).state_dict() for mode in MODES.values() if not mode.compiled]
    for state in states[1:]:
        assert all(torch.equal(state[key], states[0][key]) for key in states[0] if "quantizer" not in key)


def test_blocks_may_be_named() -> None:
    model = Workload("resnet8", checkpoint=["blocks.1"]).build(MODES[PACKED_CHECKPOINTED])
    names = [name for name, module in model.named_modules() if isinstance(module, Checkpointed)]
    assert names == ["blocks.1"]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"batch": 1}, "batch must be at least 2, because BatchNorm needs two images; got 1"),
        ({"bits": 9}, "bits must be one of the integers 1, 2, 3, 4, 5, 6, 7, 8, 16; got 9"),
        ({"image": (3, 32)}, "image must be channels, height and width, as in 3 32 32; got 3 32"),
        ({"image": (3, 0, 32)}, "image must be channels, height and width, as in 3 32 32; got 3 0 32"),
        ({"model": "resnet9"}, "unknown model 'resnet9'; nearest: "),
        ({"checkpoint": ["block.*"]}, r"checkpoint pattern 'block\.\*' matches nothing"),
        ({"model": PLAIN}, f"checkpoint must name the blocks of {PLAIN}, which has neither stem nor blocks"),
    ],
)
def test_bad_cases(case: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Workload(**case).build(MODES[PACKED_CHECKPOINTED])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_where_there_is_none() -> None:
    with pytest.raises(ValueError, match="device must be cpu, because torch finds no CUDA device; got cuda"):
        Workload(device="cuda")


def test_every_model_of_the_package_is_in_the_help() -> None:
    assert [name for name in MODELS if name not in (Workload.__doc__ or "")] == []


def test_learned_is_a_mode_too() -> None:
    model = Workload("resnet8").build(MODES["qat, learned scales"])
    quantizers = [m for m in model.modules() if isinstance(m, Quantizer)]
    assert [isinstance(q.scale, LearnedScale) for q in quantizers] == [q.grid.bits == 4 for q in quantizers]
    assert sum(q.grid.bits == 8 for q in quantizers) == 3  # the images, and the weights of both ends


def test_batches_change_and_can_be_repeated() -> None:
    workload = Workload(image=(3, 8, 8), batch=4)
    images, labels = workload.random_batch(1)
    assert (images.shape, labels.shape) == ((4, 3, 8, 8), (4,))
    assert 0 <= images.min() < images.max() <= 1
    assert torch.equal(images, workload.random_batch(1)[0])
    brightness = [workload.random_batch(number)[0].mean() for number in range(3)]
    assert brightness[0] > 2 * brightness[2]
    assert len(workload.random_batch(size=2)[0]) == 2

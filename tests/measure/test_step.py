"""A training step, and the path that its quantizers take."""

import pytest
import torch

from qat import Quantization, quantize
from qat.measure import workload
from qat.measure.modes import FLOAT, MODES, PACKED_CHECKPOINTED
from qat.measure.step import path_of, paths_in
from qat.measure.workload import Workload
from qat.memory.packing import is_packing
from qat.models import SmallCNN
from qat.quantizers import Quantizer, activation_quantizer, kernels, use_eager_kernels

WORKLOAD = Workload("resnet8", image=(3, 8, 8), batch=4)


@pytest.mark.parametrize("name", [FLOAT, PACKED_CHECKPOINTED])
def test_a_step_learns(name: str) -> None:
    step = WORKLOAD.train_step(name)
    packing: list[bool] = []
    step.network.register_forward_hook(lambda *_: packing.append(is_packing()))
    weight = step.network.fc.weight
    before = weight.detach().clone()
    first = step(*WORKLOAD.random_batch())
    assert not first.requires_grad
    assert weight.grad is not None
    assert not torch.equal(weight, before)
    for _ in range(5):
        last = step(*WORKLOAD.random_batch())
    assert last < first
    assert packing == [MODES[name].packed] * 6


def test_saved_bytes_are_those_of_the_mode() -> None:
    images, _ = WORKLOAD.random_batch()
    saved = {
        name: WORKLOAD.train_step(name).saved_bytes(images)
        for name in ("qat", "qat, packed", PACKED_CHECKPOINTED)
    }
    assert saved[PACKED_CHECKPOINTED] < 0.2 * saved["qat, packed"] < 0.2 * saved["qat"]


def test_channels_last_reaches_the_images() -> None:
    step, seen = WORKLOAD.train_step("float, channels_last"), []
    step.network.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    images, labels = WORKLOAD.random_batch()
    step.on(images, labels).call()
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(seen[0], images)


@pytest.mark.parametrize(
    ("name", "path"), [(FLOAT, ""), ("qat", "eager"), ("qat, compiled", "graph"), ("float, compiled", "")]
)
def test_the_path_of_a_step(name: str, path: str) -> None:
    assert WORKLOAD.timed_step(name).path() == path


def test_eager_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(workload, "compile_kernels", lambda network, device: asked.append(network))
    for name in ("qat, QAT_COMPILE=0", "qat, compiled", FLOAT):
        WORKLOAD.build(MODES[name])
    assert asked == []
    network = WORKLOAD.build(MODES["qat"])
    assert asked == [network]


def test_the_path_of_a_tensor() -> None:
    quantizer = activation_quantizer(torch.zeros(1), 4, signed=True)
    large = torch.rand(kernels.COMPILED_MIN_SIZE)
    assert path_of(quantizer, large) == "eager"
    quantizer.compiled_on = "cpu"
    assert path_of(quantizer, large) == "compiled"
    assert path_of(quantizer, large[1:]) == "eager"
    use_eager_kernels(quantizer)
    assert path_of(quantizer, large) == "eager"


def test_the_paths_of_the_quantizers_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(4, 1, 28, 28)
    model = quantize(SmallCNN(), Quantization(), images).train()
    assert paths_in(model, images) == "eager"
    # The images, 5 weights (the largest of 64 x 64 x 3 x 3) and the inputs of 4 layers (the first of
    # 4 x 16 x 28 x 28, the second of 4 x 32 x 14 x 14).
    monkeypatch.setattr(Quantizer, "uses_compiled_kernels", lambda self, x: x.numel() > 20_000)
    assert paths_in(model, images) == "3/10"

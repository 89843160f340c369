"""Steps of training, on batches that change."""

import pytest
import torch

from qat.measure.memory.case import Case
from qat.measure.memory.modes import BOTH, FLOAT, MODES
from qat.measure.memory.trainee import Trainee, batch
from qat.memory.packing import is_packing


def test_batches_change_and_come_again() -> None:
    images, labels = batch(1, 4, (3, 8, 8), 10, "cpu")
    assert (images.shape, labels.shape) == ((4, 3, 8, 8), (4,))
    assert 0 <= images.min() < images.max() <= 1
    assert torch.equal(images, batch(1, 4, (3, 8, 8), 10, "cpu")[0])
    brightness = [batch(number, 4, (3, 8, 8), 10, "cpu")[0].mean() for number in range(3)]
    assert brightness[2] > 2 * brightness[0]


@pytest.mark.parametrize("name", [FLOAT, BOTH])
def test_a_step_learns(name: str) -> None:
    trainee = Trainee(Case("resnet8").build(MODES[name]), MODES[name].packed)
    packing: list[bool] = []
    trainee.model.register_forward_hook(lambda *_: packing.append(is_packing()))
    weight = trainee.model.fc.weight
    before = weight.detach().clone()
    first = trainee.step(*batch(0, 4, (3, 8, 8), 10, "cpu"))
    assert not first.requires_grad
    assert weight.grad is not None
    assert not torch.equal(weight, before)
    for _ in range(5):
        last = trainee.step(*batch(0, 4, (3, 8, 8), 10, "cpu"))
    assert last < first
    assert packing == [MODES[name].packed] * 6

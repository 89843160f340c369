"""Every model: shapes, sizes, and one activation module for each site."""

import pytest
import torch
from torch import nn

from qat.models import MODELS, SmallCNN

PARAMETERS = {
    "lenet": 61_706,
    "small_cnn": 61_050,
    "resnet8": 77_946,
    "resnet20": 272_378,
    "resnet56": 855_674,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_logits_for_either_input(name: str, shape: tuple[int, int, int]) -> None:
    model = MODELS[name](input_shape=shape, classes=7)
    assert model(torch.rand(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_number_of_parameters(name: str, count: int) -> None:
    assert sum(p.numel() for p in MODELS[name]().parameters()) == count


@pytest.mark.parametrize("name", MODELS)
def test_each_activation_module_runs_once(name: str) -> None:
    model = MODELS[name]()
    calls: list[nn.Module] = []
    activations = [module for module in model.modules() if isinstance(module, nn.ReLU)]
    for module in activations:
        module.register_forward_hook(lambda module, *_: calls.append(module))
    model(torch.rand(2, *((3, 32, 32) if name.startswith("resnet") else (1, 28, 28))))
    assert sorted(map(id, calls)) == sorted(map(id, activations))


@pytest.mark.parametrize("name", MODELS)
def test_blocks_are_named(name: str) -> None:
    blocks = MODELS[name]().blocks
    assert isinstance(blocks, nn.Sequential)
    assert len(blocks) >= 2


def test_options_of_small_cnn() -> None:
    model = SmallCNN(width=4, dropout=0.5)
    assert model.blocks[0].conv.out_channels == 4
    assert model.dropout.p == 0.5


@pytest.mark.parametrize(("name", "side"), [("lenet", 12), ("small_cnn", 8)])
def test_images_that_are_too_small(name: str, side: int) -> None:
    assert MODELS[name]((1, side, side))(torch.rand(2, 1, side, side)).shape == (2, 10)
    with pytest.raises(
        ValueError, match=rf"of at least {side}x{side}, got input_shape \(1, {side}, {side - 1}\)"
    ):
        MODELS[name]((1, side, side - 1))

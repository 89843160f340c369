"""`quantize` on torchvision's networks as they are."""

import copy
from collections.abc import Callable

import pytest
import torch
import torchvision
from torch import Tensor, nn

from qat.layers import Quantization, quantize

SMALL = ["mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_5"]
ALL = [
    *("resnet18", "mobilenet_v2", "mobilenet_v3_small", "vgg11_bn", "squeezenet1_1", "densenet121"),
    *("shufflenet_v2_x0_5", "efficientnet_b0", "googlenet", "mnasnet0_5", "regnet_y_400mf", "convnext_tiny"),
]
HEADS = {"googlenet": 3}  # two auxiliary ones, in training
CASES = [(name, 64) for name in SMALL] + [pytest.param(name, 224, marks=pytest.mark.slow) for name in ALL]


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    settings = {"init_weights": True} if name == "googlenet" else {}
    return getattr(torchvision.models, name)(**settings)


@pytest.mark.parametrize(("name", "size"), CASES)
def test_every_operand_is_on_a_grid_and_a_step_is_finite(
    name: str, size: int, levels: Callable[[nn.Module, Tensor], list[tuple[int, int]]]
) -> None:
    model = build(name)
    x = torch.rand(2, 3, size, size)
    quantize(model, Quantization(), x)
    seen = levels(model, x)
    assert len(seen) == sum(isinstance(m, (nn.Conv2d, nn.Linear)) for m in model.modules())
    assert seen[0][0] <= 256
    assert all(inputs <= 16 for inputs, _ in seen[1:])
    assert sorted(weights for _, weights in seen)[-HEADS.get(name, 1) - 2 :] == [15] + [255] * (
        HEADS.get(name, 1) + 1
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    outputs = model(x)
    loss = sum(nn.functional.cross_entropy(y, torch.tensor([0, 1])) for y in _heads(outputs))
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    assert all(p.isfinite().all() for p in model.parameters())
    assert model.eval()(x).isfinite().all()


@pytest.mark.parametrize(("name", "size"), CASES)
def test_at_32_bits_it_is_torchvisions_network_bit_for_bit(name: str, size: int) -> None:
    model = build(name)
    x = torch.rand(2, 3, size, size)
    twin = quantize(copy.deepcopy(model), Quantization(32, 32, 32, 32), x)
    assert model.state_dict().keys() == twin.state_dict().keys()
    for mode in (True, False):
        results = []
        for network in (model, twin):
            torch.manual_seed(1)
            results.append(_heads(network.train(mode)(x)))
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def _heads(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)

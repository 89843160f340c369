"""Scales, roundings, bits and flags in all kinds of combinations: a training step, and the right levels."""

import itertools
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from qat.gradients import ROUNDINGS
from qat.layers import Quantization, QuantLayer, quantize
from qat.quantizers import ActivationScaleName, WeightScaleName

# Flags and bits are cycled, so that each is combined with each scale and rounding; all products are 1,800.
FLAGS = itertools.cycle(itertools.product((False, True), repeat=3))
BITS = itertools.cycle((1, 2, 3, 4, 8, 16, 5))
COMBINATIONS = [
    (*names, next(BITS), *next(FLAGS))
    for names in itertools.product(get_args(WeightScaleName), get_args(ActivationScaleName), ROUNDINGS)
]


class Net(nn.Module):
    """A network with every kind of layer, and of input: unsigned, signed, an average."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()),
            *(nn.Conv2d(4, 4, 3, groups=2, bias=False), nn.SiLU()),
            *(nn.ConvTranspose2d(4, 4, 2, stride=2), nn.ReLU6()),
            *(nn.Flatten(2), nn.Conv1d(4, 4, 1)),
        )
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x).mean(2))


@pytest.mark.parametrize("choice", COMBINATIONS, ids=str)
def test_a_step_is_finite_and_every_operand_on_its_grid(choice: tuple[Any, ...]) -> None:
    weight_scale, activation_scale, rounding, bits, power_of_two, asymmetric, per_channel = choice
    torch.manual_seed(0)
    x = torch.rand(4, 3, 6, 6)
    model = quantize(
        Net(),
        Quantization(
            *(bits, bits, bits, bits),
            weight_scale=weight_scale,
            activation_scale=activation_scale,
            rounding=rounding,
            power_of_two=power_of_two,
            asymmetric=asymmetric and activation_scale == "observed",
            per_channel=per_channel,
        ),
        x,
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert all(value.isfinite().all() for value in model.state_dict().values())
    inputs: list[Tensor] = []
    for layer in (module for module in model.eval().modules() if isinstance(module, QuantLayer)):
        layer.input_quantizer.register_forward_hook(lambda module, args, y: inputs.append(y))
        weight, quantizer = layer.weight.detach(), layer.weight_quantizer
        scale = quantizer.scale(weight).detach()
        assert scale.numel() == (weight.shape[layer.channel_axis] if per_channel else 1)
        assert ((scale > 0) & scale.isfinite()).all()
        assert not power_of_two or (torch.frexp(scale).mantissa == 0.5).all()
        codes = quantizer.codes(weight)
        assert codes.abs().max() <= quantizer.grid.high
        assert torch.equal(quantizer(weight), codes * scale)
    assert model(x).isfinite().all()
    assert len(inputs) == 5
    assert all(len(y.unique()) <= 2**bits for y in inputs)

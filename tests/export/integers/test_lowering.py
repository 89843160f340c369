"""Operations that have a form in integers, and errors that name the layer of any other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qat import Quantization, checkpoint_blocks, quantize
from qat.export import IntegerModel
from qat.models import ResNet8


class Functional(nn.Module):
    """Sums, ReLUs, an average and flattening as functions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.pool, self.last = nn.AvgPool2d(2), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        y = self.pool(torch.add(y, self.second(y)).relu())
        return self.last(torch.flatten(nn.functional.adaptive_avg_pool2d(y, (1, 1)), 1))


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 4, 3), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).mean((2, 3))
        return self.last(torch.cat([y, y], 1))


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.fc = nn.Flatten(), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.flatten(x))


def calibrated(model: nn.Module, **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    model = quantize(model, Quantization(**settings), torch.rand(4, 1, 8, 8))
    model(torch.rand(8, 1, 8, 8))
    return model


def layers(*middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), *middle, nn.Flatten(), nn.Linear(4 * 36, 3))


def test_functions_and_groups_and_sums_of_floats() -> None:
    model = calibrated(Functional(), weight_bits=8, activation_bits=8)
    done = IntegerModel(model, (1, 8, 8)).compare(torch.rand(50, 1, 8, 8))
    assert done.predictions == 0
    assert done.logits.within >= 45


@pytest.mark.parametrize("activation", [nn.ReLU6(), nn.Hardtanh(-0.3, 0.4)])
def test_clipped_activations(activation: nn.Module) -> None:
    model = calibrated(layers(activation))
    done = IntegerModel(model, (1, 8, 8)).compare(torch.rand(50, 1, 8, 8))
    assert done.predictions == 0
    assert done.logits.within >= 45


def test_a_network_that_begins_with_flattening() -> None:
    images = torch.rand(50, 1, 8, 8)
    integers = IntegerModel(calibrated(Wide(), weight_bits=4, deployable=True), (1, 8, 8))
    assert integers.compare(images).logits.equal == 50


def test_checkpointed_blocks() -> None:
    model = quantize(ResNet8(), Quantization(deployable=True), torch.zeros(2, 3, 32, 32))
    checkpoint_blocks(model, ["blocks.*"])
    model(torch.rand(4, 3, 32, 32))
    assert IntegerModel(model, (3, 32, 32)).compare(torch.rand(4, 3, 32, 32)).logits.equal == 4


@pytest.mark.parametrize(
    ("build", "settings", "message"),
    [
        (lambda: layers(nn.SiLU()), {}, "^1: there is no form in integers for QuantSiLU"),
        (Joined, {}, "^the model itself: there is no form in integers for cat"),
        (lambda: layers(nn.MaxPool2d(3, 1, 1, ceil_mode=True)), {}, "^1: .* max-pooling with ceil_mode"),
        (lambda: layers(nn.LocalResponseNorm(2)), {}, "^1: .*for LocalResponseNorm"),
        (
            lambda: layers(nn.ReLU()),
            {"layers": {"3": {"weight_bits": 32}}},
            "^3: integers need weights on a grid, but its weight has 32 bits",
        ),
        (
            Wide,
            {"weight_bits": 16, "first_last_bits": 16, "input_bits": 16},
            "^fc: its sums may reach .*, more than an int32 holds; give it fewer bits",
        ),
    ],
)
def test_an_unsupported_operation_is_named_with_its_layer(
    build: Callable[[], nn.Module], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        IntegerModel(calibrated(build(), **settings), (1, 8, 8))


def test_a_model_that_was_never_calibrated() -> None:
    model = quantize(layers(nn.ReLU()), Quantization(), torch.rand(2, 1, 8, 8))
    with pytest.raises(ValueError, match=r"^0: the model was never calibrated"):
        IntegerModel(model, (1, 8, 8))

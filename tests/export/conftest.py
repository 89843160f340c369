"""Small networks after a few training steps, with realistic codes and statistics."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.onnx._internal.exporter._registration import ONNXRegistry

from qat import Quantization, quantize
from qat.export import export_onnx
from qat.models import LeNet, ResNet8, SmallCNN

Build = Callable[..., tuple[nn.Module, Tensor]]


@pytest.fixture(scope="session", autouse=True)
def one_table_of_operators() -> None:
    """torch's exporter builds the same table at each call, which takes a third of its time."""
    once = staticmethod(cache(ONNXRegistry.from_torchlib))  # torch calls it on an instance, too
    ONNXRegistry.from_torchlib = once  # type: ignore[method-assign,assignment]


@cache
def _trained(name: str, written: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    settings = json.loads(written)
    kinds: dict[str, Callable[[], nn.Module]] = {
        "small_cnn": lambda: SmallCNN(width=4),
        "lenet": LeNet,
        "resnet8": lambda: ResNet8((3, 16, 16)),
    }
    shape = (3, 16, 16) if name == "resnet8" else (1, 28, 28)
    images, labels = torch.rand(16, *shape), torch.randint(10, (16,))
    model = quantize(kinds[name](), Quantization(**settings), torch.zeros(2, *shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(12):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    optimizer.zero_grad()
    return model, torch.rand(60, *shape)


@pytest.fixture(scope="session")
def trained() -> Build:
    """`trained(name, **configuration)`: a model in training mode and 60 images; tests share them."""
    return lambda name, **settings: _trained(name, json.dumps(settings))


@pytest.fixture(scope="session")
def file(trained: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ONNX file of a deployable model of 4 bits, with 8 in the first and the last layer."""
    model, images = trained("small_cnn", deployable=True)
    return export_onnx(model, images[:1], tmp_path_factory.mktemp("onnx") / "model.onnx", run="runs/mine")

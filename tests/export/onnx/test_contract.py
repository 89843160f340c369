"""A file computes what the model does: for all widths, beyond the range that was observed, at each level."""

from itertools import product
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

from qat import Quantization, quantize
from qat.export.onnx.export import onnx_bytes
from qat.export.onnx.verify import refuse_differences, verify
from qat.quantizers.grid import WIDTHS

WIDE = tuple(bits for bits in WIDTHS if bits > 1)  # no format holds 1 signed bit


def calibrated(net: nn.Module, signed: bool, **settings: Any) -> tuple[nn.Module, Tensor]:
    """A model that saw a batch of images, and that batch."""
    images = torch.rand(8, 2, 6, 6) * (2 if signed else 1) - (1 if signed else 0)
    model = quantize(net, Quantization(input_signed=signed, **settings), images)
    model.train()(images)
    return model.eval(), images


def refuse_file(model: nn.Module, images: Tensor, opset: int) -> None:
    """Raise an error if the file differs in range or beyond it, where all grids end."""
    content = onnx_bytes(model, (images,), opset, fold=False, run="")
    assert onnx.load_from_string(content).opset_import[0].version == opset
    refuse_differences(model, content, (torch.cat([images, 20 * images, -20 * images]),))


def layer(channels: int, bits: int, kind: type[nn.Module]) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, 3, 1), kind(), nn.MaxPool2d(2, 1) if bits % 2 else nn.Identity())


@pytest.mark.parametrize(
    ("kind", "signed", "asymmetric", "opset"),
    [
        (nn.ReLU, False, False, 25),
        pytest.param(nn.SiLU, True, False, 21, marks=pytest.mark.slow),
        (nn.SiLU, False, True, 25),
        (nn.ReLU, True, True, 21),
    ],
)
def test_layers_of_all_widths(kind: type[nn.Module], signed: bool, asymmetric: bool, opset: int) -> None:
    torch.manual_seed(1)
    widths = WIDTHS if asymmetric or kind is nn.ReLU else WIDE
    layers = [layer(3 if n else 2, bits, kind) for n, bits in enumerate(widths)]
    overrides = {f"{n}.*": {"weight_bits": b, "activation_bits": b} for n, b in enumerate(widths)}
    net = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(4))
    net(torch.rand(2, 2, 6, 6))
    settings = {"input_bits": 5, "asymmetric": asymmetric, "layers": overrides}
    refuse_file(*calibrated(net, signed, **settings), opset)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nn.ReLU, nn.SiLU])
@pytest.mark.parametrize("bits", WIDTHS)
def test_every_width_alone(bits: int, kind: type[nn.Module]) -> None:
    names = ("weight_bits", "activation_bits", "first_last_bits", "input_bits")
    for signed, asymmetric, per_channel, opset in product(
        (False, True), (False, True), (False, True), (21, 25)
    ):
        if bits == 1 and not asymmetric and (signed or kind is nn.SiLU):
            continue
        torch.manual_seed(bits)
        net = nn.Sequential(
            *(nn.Conv2d(2, 5, 3, padding=1), kind(), nn.Conv2d(5, 4, 3, groups=1), kind()),
            *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)),
        )
        widths = dict.fromkeys(names, bits)
        model, images = calibrated(net, signed, asymmetric=asymmetric, per_channel=per_channel, **widths)
        refuse_file(model, images, opset)


class Normalized(nn.Module):
    """A network that normalizes its input, so that the first layer reads negative numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 3), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers((x - 0.5) / 0.25)


@pytest.mark.parametrize(("bits", "deployable"), [(4, "onnx"), (8, "onnx"), (8, False), (16, False)])
def test_a_network_that_normalizes_its_input(bits: int, deployable: Any) -> None:
    torch.manual_seed(0)
    model, images = calibrated(
        Normalized(), False, input_bits=bits, activation_bits=bits, deployable=deployable
    )
    refuse_file(model, images, 21)


def two_convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 3), nn.Flatten())


def test_a_bias_that_integers_cannot_hold_stays_a_float() -> None:
    """Where onnxruntime merges a layer into integers, it rounds the bias to the unit of the sums."""
    options = {"weight_bits": 5, "activation_bits": 8, "first_last_bits": 5}
    model, images = calibrated(two_convolutions(), False, **options)
    content = onnx_bytes(model, (images,), 21, False, "")
    assert "Max" in [node.op_type for node in onnx.load_from_string(content).graph.node]
    done = verify(model, content, torch.cat([images, 20 * images]))
    assert done.on.within == done.off.within == 16


def test_a_bias_behind_a_pool_stays_a_float() -> None:
    """onnxruntime moves the pool in front of DequantizeLinear, and merges the layer then."""
    torch.manual_seed(0)
    first = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2))
    net = nn.Sequential(*first, nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(200, 4))
    images = torch.rand(8, 3, 16, 16)
    model = quantize(net, Quantization(weight_bits=4, activation_bits=8), images)
    model(images)
    refuse_file(model.eval(), images, 21)


def test_a_bias_that_integers_hold_stays_an_integer() -> None:
    options = {"weight_bits": 8, "activation_bits": 8, "deployable": True}
    model, images = calibrated(two_convolutions(), False, **options)
    content = onnx_bytes(model, (images,), 21, False, "")
    assert "Max" not in [node.op_type for node in onnx.load_from_string(content).graph.node]

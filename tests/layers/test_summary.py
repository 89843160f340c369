"""The summary: bits, multiply-accumulates, bit operations, bytes, and what was left float."""

import copy

import pytest
import torch
import torchvision
from torch import Tensor, nn

from qat.layers import Quantization, quantize, summary
from qat.models import SmallCNN


def small(config: Quantization | None = None) -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.Flatten(),
        nn.Linear(4 * 16 * 16, 10),
    )
    return quantize(model, config or Quantization(), torch.rand(2, 3, 8, 8))


def test_rows_by_hand() -> None:
    rows = summary(small(Quantization(3, 2, activation_scale="pact")), torch.rand(5, 3, 8, 8)).rows
    assert [row.name for row in rows] == ["0", "2", "3", "5"]
    assert [row.kind for row in rows] == ["QuantConv2d", "QuantConv2d", "QuantConvTranspose2d", "QuantLinear"]
    assert [row.weight_bits for row in rows] == [8, 3, 3, 8]
    assert [row.input_bits for row in rows] == [8, 2, 2, 2]  # the second through the ReLU
    macs = [64 * 8 * 27, 64 * 8 * 18, 64 * 8 * 16, 10240]
    assert [row.macs for row in rows] == macs
    assert [row.bit_operations for row in rows] == [macs[0] * 64, macs[1] * 6, macs[2] * 6, macs[3] * 16]
    assert [row.weight_bytes for row in rows] == [216, 54, 48, 10240]
    assert [row.float_bytes for row in rows] == [864, 576, 512, 40960]
    assert {row.rounding for row in rows} == {"ste"}
    assert [row.scale for row in rows] == [
        "observed/pact",
        *["observed/pact", "observed/learned"],
        "observed/learned",
    ]


def test_totals_beside_float() -> None:
    whole = summary(small(), torch.rand(2, 3, 8, 8))
    assert whole.macs == sum(row.macs for row in whole.rows)
    assert whole.float_bit_operations == 1024 * whole.macs
    assert whole.weight_bytes == 216 + 72 + 64 + 10240
    assert whole.float_bytes == 864 + 576 + 512 + 40960
    assert whole.left_float == {}


@pytest.mark.parametrize(("name", "macs"), [("mobilenet_v2", 300_774_272), ("resnet18", 1_814_073_344)])
def test_known_numbers(name: str, macs: int) -> None:
    model = getattr(torchvision.models, name)()
    assert summary(model, torch.zeros(1, 3, 224, 224)).macs == macs


def test_nothing_moves() -> None:
    model = quantize(SmallCNN(dropout=0.5), Quantization(), torch.rand(2, 1, 28, 28))
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(1)
    summary(model, torch.rand(2, 1, 28, 28))
    torch.manual_seed(1)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_tied_weights_are_stored_once_and_calls_are_counted() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(self.a(x)))

    whole = summary(Tied(), torch.rand(2, 4))
    assert [row.macs for row in whole.rows] == [32, 16]
    assert whole.float_bytes == 64


class Odd(nn.Module):
    """A subclass, attention, a functional product, a layer without quantized form, one for training alone."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.volume = nn.Conv3d(1, 1, 1)
        self.auxiliary = nn.Linear(8, 2)
        self.kept = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        y = self.attention(y, y, y, need_weights=False)[0] @ y.mT
        if self.training:
            self.auxiliary(x)
        return self.kept(self.volume(y[None, None]).squeeze() @ x)


def test_what_is_left_float_is_listed_with_the_reason() -> None:
    x = torch.rand(3, 5, 8)
    model = Odd()
    with pytest.warns(UserWarning, match=r"left float, .*: attention\.out_proj, volume"):
        quantize(model, Quantization(layers={"kept": {"activation_bits": 32}}), x)
    whole = summary(model, x)
    function = "ran as a function, not as a module; its MACs are not counted"
    assert whole.left_float == {
        "volume": "there is no quantized form of Conv3d",
        "kept": "its input has 32 bits",
        "attention.out_proj": "did not run as a module in eval mode",
        "attention: multi_head_attention_forward": function,
        "the model itself: matmul": function,
    }
    assert whole.not_run == ["auxiliary"]
    text = str(whole)
    assert "left float: volume: there is no quantized form of Conv3d" in text
    assert "runs in training only: auxiliary" in text


def test_input_bits_of_two_consumers_of_which_one_quantizes_its_own_input() -> None:
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu, self.a, self.b = nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.relu(x)
            return self.a(y) + self.b(y)

    model = quantize(Fork(), Quantization(layers={"a": {"activation_bits": 2}}), torch.rand(2, 4))
    assert [row.input_bits for row in summary(model, torch.rand(2, 4)).rows] == [2, 8]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_is_listed_as_float(kind: type[nn.Module]) -> None:
    whole = summary(kind(4, 6), torch.rand(2, 3, 4))
    (name,) = whole.left_float
    assert name.startswith("the model itself: ")


def test_as_text() -> None:
    lines = str(summary(small(Quantization(power_of_two=True)), torch.rand(2, 3, 8, 8))).splitlines()
    assert len(lines) == 1 + 4 + 2 + 1
    assert lines.pop().startswith("float until the layer itself quantizes it, bytes of a sample: ")
    assert (
        " ".join(lines[0].split()) == "layer kind W bits A bits rounding scale W/A MACs bit ops weight bytes"
    )
    assert lines[2].split() == [
        *("2", "QuantConv2d", "4", "4", "ste"),
        *("observed", "2^k/observed", "2^k", "9,216", "147,456", "72"),
    ]
    assert lines[5].split()[0] == "total"
    assert lines[6].startswith("in float")


def test_refused() -> None:
    with pytest.raises(ValueError, match=r"does not run through 0 \(QuantConv2d\)"):
        summary(small(), torch.rand(2, 1, 8, 8))

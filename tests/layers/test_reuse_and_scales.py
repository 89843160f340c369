"""Layers that run twice, have groups, are not reached or are replaced, and scales that nothing has set."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from qat import Quantization, packed_activations, quantize
from qat.layers import fold_batchnorm, summary


class TwoCalls(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.a, self.factor = nn.Linear(8, 4), factor

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + self.a(x * self.factor)


@pytest.mark.parametrize("factor", [100.0, 0.01, 0.0])
def test_one_scale_for_calls_of_very_different_size_is_warned_of(factor: float) -> None:
    x = torch.rand(4, 8)
    with pytest.warns(UserWarning, match=r"a runs 2 times with one scale for all inputs, .*magnitudes are"):
        model = quantize(TwoCalls(factor), Quantization(input_bits=4), x)
    assert summary(model, x).notes == {"a": "runs 2 times, and one scale serves all inputs"}
    assert "note: a: runs 2 times" in str(summary(model, x))


@pytest.mark.parametrize("config", [Quantization(), Quantization(per_channel=False, weight_scale="learned")])
@pytest.mark.parametrize("groups", [2, 4, 8])
def test_a_channel_of_a_grouped_transposed_convolution_does_not_change_the_others(
    groups: int, config: Quantization
) -> None:
    layer = nn.ConvTranspose2d(8, 16, 4, groups=groups, bias=False)
    large = copy.deepcopy(layer)
    position = 1  # in the first group
    large.weight.data[: 8 // groups, position] *= 100
    x, outputs = torch.rand(2, 8, 6, 6), []
    for each in (layer, large):
        model = quantize(nn.Sequential(each), config, x)
        outputs.append(model(x)[:, [channel for channel in range(16) if channel != position]])
        assert model.state_dict()["0.weight"].shape == (8, 16 // groups, 4, 4)
        codes = model[0].weight_quantizer.codes(model[0].effective_weight)
        assert codes.shape == (16, 8 // groups, 4, 4)
    assert torch.equal(*outputs) == config.per_channel


def test_folding_packing_and_copies_of_a_grouped_transposed_convolution() -> None:
    torch.manual_seed(0)
    x = torch.rand(4, 8, 5, 5)
    net = nn.Sequential(
        nn.ConvTranspose2d(8, 6, 3, groups=2), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 3)
    )
    net(x)
    expected = net.eval()(x)
    fold_batchnorm(net, x)
    torch.testing.assert_close(net(x), expected)
    model = quantize(net.train(), Quantization(), x)
    gradients = []
    for within in (nullcontext, packed_activations):
        model.zero_grad()
        with within():
            y = model(x)
        y.square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    twin = quantize(copy.deepcopy(net_like(model)), Quantization(), torch.zeros_like(x))
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin.eval()(x), model.eval()(x))
    assert summary(model, x).rows[0].weight_bits == 8


def net_like(model: nn.Module) -> nn.Module:
    return nn.Sequential(nn.ConvTranspose2d(8, 6, 3, groups=2), nn.Identity(), nn.ReLU(), nn.Conv2d(6, 2, 3))


class Branch(nn.Module):
    """The last layer reads a quantized activation, or what another path computes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act = nn.Linear(8, 8), nn.ReLU()
        self.other, self.last = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.last(self.other(y).tanh() if x.mean() > 0 else self.act(y))


def test_a_branch_that_the_example_does_not_take() -> None:
    zeros, ones = torch.zeros(2, 8), torch.ones(2, 8)
    with pytest.warns(UserWarning, match="left float, because they did not run as a plain one of .*: other"):
        model = quantize(Branch(), Quantization(), zeros)
    model(-ones)
    assert summary(model, zeros).left_float == {"other": "did not run as a module in eval mode"}
    assert summary(model, ones).left_float == {
        "other": "weight and input have 32 bits; it holds no quantizer",
        "last": "its input has 32 bits",
    }


def test_a_float_layer_put_back() -> None:
    x = torch.rand(2, 3, 8, 8)
    model = quantize(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)), Quantization(), x)
    model[2] = nn.Conv2d(4, 2, 3)
    whole = summary(model, x)
    assert (whole.rows[1].weight_bits, whole.rows[1].input_bits) == (32, 4)
    assert whole.left_float == {"2": "its weight has 32 bits; it holds no quantizer"}


CONFIGS = {
    "observed": Quantization(),
    "learned": Quantization(weight_scale="learned", activation_scale="learned"),
    "pact": Quantization(activation_scale="pact"),
    "asymmetric": Quantization(asymmetric=True, input_signed=True),
    "deployable": Quantization(deployable="onnx"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_scales_that_nothing_has_set_are_named_once(name: str) -> None:
    x = torch.rand(4, 3, 8, 8)

    def build(example: Tensor) -> nn.Module:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
        net[0].bias.data.zero_()
        return quantize(net, CONFIGS[name], example).eval()

    model = build(torch.zeros_like(x))
    assert set(summary(model, x).notes) == {"0", "1"}
    with pytest.warns(UserWarning, match=r"^[01]: its scale was never set") as warned:
        model(x)
    assert len(warned) == 2
    model(x)  # only once
    model = copy.deepcopy(build(torch.zeros_like(x)))
    model.train()(x)
    model.eval()(x)
    assert summary(model, x).notes == {}
    model = build(x)
    model(x)
    assert summary(model, x).notes == {}
    loaded = build(torch.zeros_like(x))
    loaded.load_state_dict(build(x).state_dict())
    loaded(x)
    assert summary(loaded, x).notes == {}
    by_hand = build(torch.zeros_like(x))
    for quantizer in (by_hand[0].input_quantizer, by_hand[1].quantizer):
        quantizer.scale.initialize(x)
    by_hand(x)
    assert summary(by_hand, x).notes == {}

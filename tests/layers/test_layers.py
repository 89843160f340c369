"""Quantized layers: torch's own to the last bit where nothing is quantized, on the grid where it is."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qat.layers import QuantConv1d, QuantConv2d, QuantConvTranspose2d, QuantLinear, QuantReLU
from qat.layers.activation import QUANT_ACTIVATIONS
from qat.quantizers import IntGrid, ObservedScale, Quantizer


def weight_quantizer(bits: int, shape: tuple[int, ...]) -> Quantizer:
    return Quantizer(IntGrid(bits), ObservedScale(IntGrid(bits).high, "max", shape, axis=0))


def input_quantizer(bits: int) -> Quantizer:
    return Quantizer(IntGrid(bits, signed=False), ObservedScale(2**bits - 1, "ema"))


PAIRS = [
    (QuantConv2d, nn.Conv2d, (4, 6, 3), {"padding": 1}, (2, 4, 8, 8)),
    (QuantConv2d, nn.Conv2d, (4, 6, 3), {"padding": "same", "padding_mode": "circular"}, (2, 4, 8, 8)),
    (QuantConv2d, nn.Conv2d, (4, 8, 3), {"groups": 4, "stride": 2, "bias": False}, (2, 4, 8, 8)),
    (QuantConv2d, nn.Conv2d, (4, 4, 3), {"groups": 4, "padding": "same", "dilation": 2}, (2, 4, 8, 8)),
    (QuantConv2d, nn.Conv2d, (4, 6, 3), {"padding": 1, "padding_mode": "reflect"}, (4, 8, 8)),
    (QuantConv1d, nn.Conv1d, (4, 6, 3), {"padding": "same", "padding_mode": "replicate"}, (2, 4, 8)),
    (QuantConvTranspose2d, nn.ConvTranspose2d, (4, 6, 3), {}, (2, 4, 5, 5)),
    (
        QuantConvTranspose2d,
        nn.ConvTranspose2d,
        (4, 6, 3),
        {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2, "bias": False},
        (2, 4, 5, 5),
    ),
    (QuantLinear, nn.Linear, (5, 3), {}, (2, 5)),
    (QuantLinear, nn.Linear, (5, 3), {"bias": False}, (2, 7, 5)),
]


@pytest.mark.parametrize(("quant", "plain", "args", "kwargs", "shape"), PAIRS)
def test_with_two_identities_it_is_torchs_layer(quant, plain, args, kwargs, shape) -> None:
    torch.manual_seed(0)
    ours = quant(*args, **kwargs, weight_quantizer=nn.Identity(), input_quantizer=nn.Identity())
    theirs = plain(*args, **kwargs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    theirs.load_state_dict(ours.state_dict())
    results = []
    for layer in (ours, theirs):
        x = torch.arange(float(torch.Size(shape).numel())).reshape(shape).sin().requires_grad_()
        y = layer(x)
        y.square().sum().backward()
        results.append([y, x.grad, *(p.grad for p in layer.parameters())])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def operands(monkeypatch: pytest.MonkeyPatch, function: str) -> list[Tensor]:
    """The operands of every call of a torch.nn.functional function from now on."""
    seen: list[Tensor] = []
    original = getattr(F, function)
    monkeypatch.setattr(F, function, lambda x, w, *rest: seen.extend((x, w)) or original(x, w, *rest))
    return seen


@pytest.mark.parametrize("bits", [2, 3, 8])
def test_both_operands_reach_the_operator_on_the_grid(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = operands(monkeypatch, "conv2d")
    layer = QuantConv2d(
        3, 4, 5, weight_quantizer=weight_quantizer(bits, (4, 1, 1, 1)), input_quantizer=input_quantizer(bits)
    )
    layer(torch.rand(2, 3, 32, 32))
    x, w = seen
    assert len(x.unique()) == 2**bits
    assert all(len(channel.unique()) <= 2**bits - 1 for channel in w)
    assert not torch.equal(w, layer.weight)


def test_quant_relu_is_quantizer_after_relu_in_value_and_gradient() -> None:
    torch.manual_seed(0)
    x = torch.cat([torch.randn(200), torch.zeros(3), torch.tensor([-1e-3, 1e-3])])
    g = torch.randn_like(x)
    results = []
    for inplace in (False, True):
        quantizer = input_quantizer(4)
        module = QuantReLU(quantizer, inplace=inplace)
        leaf = x.clone().requires_grad_()
        y = module(leaf * 1)
        y.backward(g)
        assert leaf.grad is not None
        results.append((y, leaf.grad))
        codes = torch.round(x.relu() / quantizer.scale.value)
        assert torch.equal(y, codes.clamp(0, 15) * quantizer.scale.value)
        assert torch.equal(leaf.grad, torch.where((x > 0) & (codes <= 15), g, 0.0))
    assert torch.equal(results[0][0], results[1][0])


def test_double_precision() -> None:
    layer = QuantLinear(
        5, 3, weight_quantizer=weight_quantizer(4, (3, 1)), input_quantizer=input_quantizer(4)
    ).double()
    assert layer(torch.rand(2, 5, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_transposed_convolution_has_one_scale_for_each_output_channel(groups: int) -> None:
    shape, axis = ((1, 8, 1, 1), 1) if groups == 1 else ((8, 1, 1, 1), 0)
    weights = Quantizer(IntGrid(3), ObservedScale(3, "max", shape, axis))
    layer = QuantConvTranspose2d(
        4, 8, 3, stride=2, groups=groups, weight_quantizer=weights, input_quantizer=nn.Identity()
    )
    assert layer.channel_axis == axis
    x = torch.rand(2, 4, 5, 5)
    for size in (11, 12):
        assert layer(x, output_size=[size, size]).shape == (2, 8, size, size)
    with pytest.raises(ValueError, match="requested an output size"):
        layer(x, output_size=[14, 14])
    outputs = layer.weight.detach().reshape(groups, 4 // groups, 8 // groups, 3, 3)
    largest = outputs.abs().amax((1, 3, 4), keepdim=True)
    assert torch.equal(weights.scale.value.flatten(), largest.flatten() / 3)
    quantized = (outputs / (largest / 3)).round() * (largest / 3)
    weight = quantized.reshape(layer.weight.shape)
    expected = F.conv_transpose2d(x, weight, layer.bias, stride=2, groups=groups)
    assert torch.equal(layer(x), expected)
    layer(x).sum().backward()
    plain = layer.weight.detach().requires_grad_()
    F.conv_transpose2d(x, plain, stride=2, groups=groups).sum().backward()
    assert torch.equal(layer.weight.grad, plain.grad)


@pytest.mark.parametrize("kind", QUANT_ACTIVATIONS, ids=lambda kind: kind.__name__)
def test_a_quantized_activation_is_the_quantizer_after_it(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    x = 3 * torch.randn(2, 4, 5)
    plain = kind()
    same = QUANT_ACTIVATIONS[kind](nn.Identity())
    assert isinstance(same, kind)
    assert same.state_dict().keys() == plain.state_dict().keys()
    assert torch.equal(same(x), plain(x))
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "ema"))
    module = QUANT_ACTIVATIONS[kind](quantizer)
    y = module(x)
    scale = plain(x).abs().max() / 7
    assert torch.equal(y, (plain(x) / scale).round() * scale)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(twin) is type(module)
        assert torch.equal(twin.eval()(x), module.eval()(x))

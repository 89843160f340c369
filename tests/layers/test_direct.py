"""Layers that are made with their bits equal those that `quantize` makes; what is read from them."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qat.export import IntegerModel, export_onnx
from qat.export.readiness import check_ready
from qat.gradients import round_ewgs
from qat.layers import (
    QuantConv1d,
    QuantConv2d,
    QuantConvTranspose2d,
    QuantHardtanh,
    Quantization,
    QuantLayer,
    QuantLeakyReLU,
    QuantLinear,
    QuantReLU,
    freeze,
    quantize,
    scale_parameters,
    summary,
    unfreeze,
    weight_codes,
)
from qat.memory import checkpoint_blocks, packed_activations
from qat.quantizers import IntGrid, ObservedScale, Quantizer

LAYERS: dict[str, tuple[Any, Any, tuple[int, ...], dict[str, Any]]] = {
    "conv1d": (nn.Conv1d, QuantConv1d, (4, 6, 3), {}),
    "conv2d": (nn.Conv2d, QuantConv2d, (4, 6, 3), {"padding": 1}),
    "depthwise": (nn.Conv2d, QuantConv2d, (4, 4, 3), {"groups": 4, "bias": False}),
    "transposed": (nn.ConvTranspose2d, QuantConvTranspose2d, (4, 6, 3), {}),
    "grouped transposed": (nn.ConvTranspose2d, QuantConvTranspose2d, (4, 6, 3), {"groups": 2}),
    "linear": (nn.Linear, QuantLinear, (8, 6), {}),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "4 bits": {"weight_bits": 4, "activation_bits": 4},
    "weights": {"weight_bits": 2},
    "input": {"activation_bits": 3},
    "learned": {
        "weight_bits": 3,
        "weight_scale": "learned",
        "activation_bits": 2,
        "activation_scale": "learned",
    },
    "ewgs": {"weight_bits": 2, "activation_bits": 8, "rounding": "ewgs", "per_channel": False},
    "unsigned": {"weight_bits": 1, "activation_bits": 4, "input_signed": False, "activation_scale": "pact"},
    "asymmetric": {"weight_bits": 8, "activation_bits": 4, "asymmetric": True},
    "power of two": {"weight_bits": 4, "activation_bits": 4, "power_of_two": True, "weight_observer": "mse"},
}


def pair(name: str, options: dict[str, Any]) -> tuple[Any, Any, Tensor]:
    """torch's layer after `quantize`, the layer that was made directly, and an input."""
    of_torch, direct, args, more = LAYERS[name]
    shape = (2, 8) if of_torch is nn.Linear else (2, 4, 9) if of_torch is nn.Conv1d else (2, 4, 6, 6)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    config = {"weight_bits": 32, "activation_bits": 32, "input_signed": True} | options
    ends = {"first_last_bits": config["weight_bits"], "input_bits": config["activation_bits"]}
    x = x if config["input_signed"] else x.abs()
    torch.manual_seed(0)
    layer = of_torch(*args, **more)
    # The override keeps a learned scale at 8 bits, too.
    layers = {"0": {"weight_scale": config.get("weight_scale", "observed")}}
    quantized = quantize(
        nn.Sequential(layer), Quantization(**config, **ends, layers=layers), torch.zeros_like(x)
    )[0]
    torch.manual_seed(0)
    return quantized, direct(*args, **more, **options), x


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_with_bits_is_what_quantize_makes(name: str, options: dict[str, Any]) -> None:
    quantized, direct, x = pair(name, options)
    assert type(quantized) is type(direct)
    assert list(quantized.state_dict()) == list(direct.state_dict())
    for layer in (quantized, direct):
        for step in range(2):
            layer(x * (1 + step)).square().sum().backward()
    for (key, a), b in zip(quantized.state_dict().items(), direct.state_dict().values(), strict=True):
        assert torch.equal(a, b), key
    for (key, a), b in zip(quantized.named_parameters(), direct.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad), key
    assert torch.equal(quantized.eval()(x), direct.eval()(x))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_codes_times_scale_are_the_weight(name: str, bits: int) -> None:
    _, layer, x = pair(name, {"weight_bits": bits})
    layer(x)
    layer.eval()
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    codes, scale, zero_point = weight_codes(layer)
    assert codes.dtype == torch.int32
    assert codes.shape == layer.weight.shape
    grid = layer.weight_quantizer.grid
    assert codes.min() >= grid.low
    assert codes.max() <= grid.high
    plain = copy.deepcopy(layer)
    plain.weight_quantizer = nn.Identity()
    plain.weight.data = (codes - zero_point) * scale
    assert torch.equal(plain(x), layer(x))
    assert all(torch.equal(value, before[key]) for key, value in layer.state_dict().items())


def test_codes_of_a_deployable_layer_are_of_its_folded_weight() -> None:
    x = torch.rand(4, 1, 6, 6)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    model = quantize(net, Quantization(deployable=True), x)
    model(x)
    codes, scale, _ = weight_codes(model.eval()[0])
    layer: Any = model[0]
    assert torch.equal(codes * scale, layer.weight_quantizer(layer.effective_weight))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_codes_in_another_dtype(dtype: torch.dtype) -> None:
    layer = QuantConv2d(3, 4, 3, weight_bits=4, activation_bits=4, dtype=dtype)
    layer(torch.rand(2, 3, 5, 5, dtype=dtype)).sum().backward()
    codes, scale, _ = weight_codes(layer)
    assert torch.equal((codes * scale).to(dtype), layer.weight_quantizer(layer.weight))


def test_layers_on_the_meta_device() -> None:
    options: dict[str, Any] = {"activation_bits": 4, "activation_scale": "learned", "device": "meta"}
    layer = QuantLinear(3, 4, weight_bits=4, weight_scale="learned", **options)
    assert all(p.is_meta for p in layer.parameters())


def replaced(quantizer: Quantizer) -> Quantizer:
    quantizer.forward = lambda x, relu=False: x * 1.37  # type: ignore[method-assign]
    return quantizer


class OtherCodes(Quantizer):
    def _composed(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        codes, scale, zero_point = super()._composed(x)
        return codes + 0.5, scale, zero_point


@pytest.mark.parametrize("kind", ["shifted", "replaced", "other codes"])
def test_no_codes_are_taken_of_a_quantizer_with_code_of_its_own(kind: str) -> None:
    parts: Any = IntGrid(4), ObservedScale(7, "max"), round_ewgs
    made = {
        "shifted": Shifted(*parts),
        "replaced": replaced(Quantizer(*parts)),
        "other codes": OtherCodes(*parts),
    }
    layer = QuantLinear(16, 4, weight_quantizer=made[kind], activation_bits=4)
    x = torch.randn(8, 16, requires_grad=True)
    layer(x)  # the first batch sets the scales
    layer.eval()
    (plain,) = torch.autograd.grad(layer(x).square().sum(), x)
    with packed_activations():
        loss = layer(x).square().sum()
    assert torch.equal(torch.autograd.grad(loss, x)[0], plain)
    with pytest.raises(ValueError, match="weight_codes needs a weight_quantizer without a forward"):
        weight_codes(layer)
    with pytest.raises(ValueError, match=r"weight_quantizer is a \w+ with a forward of its own"):
        check_ready(nn.Sequential(layer))


def test_codes_need_an_enabled_quantizer() -> None:
    layer: Any = QuantLinear(4, 4, weight_bits=4)
    layer.weight_quantizer.enabled = False
    with pytest.raises(ValueError, match="needs an enabled weight_quantizer"):
        weight_codes(layer)


@pytest.mark.parametrize("change", [freeze, unfreeze])
def test_a_float_model_has_no_scale_to_freeze(change: Any) -> None:
    with pytest.raises(ValueError, match="holds no Quantizer"):
        change(nn.Linear(2, 2))


@pytest.mark.parametrize("layer", [nn.Linear(2, 2), nn.ReLU(), QuantLinear(2, 2, activation_bits=4)])
def test_codes_need_a_quantized_weight(layer: nn.Module) -> None:
    with pytest.raises(ValueError, match="weight_codes needs a layer whose weight_quantizer"):
        weight_codes(layer)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: QuantConv2d(3, 4, 3, weight_bits=9), "weight_bits must be one of"),
        (lambda: QuantConv2d(3, 4, 3, weight_bits="4"), "weight_bits must be one of"),
        (lambda: QuantLinear(3, 4, activation_bits=0), "activation_bits must be one of"),
        (lambda: QuantLinear(3, 4, weight_bits=4, rounding="stee"), "unknown rounding 'stee'; nearest: ste"),
        (lambda: QuantLinear(3, 4, weight_scale="learned"), "weight_scale has no effect in a QuantLinear"),
        (lambda: QuantLinear(3, 4, weight_bits=4, input_signed=True), "input_signed has no effect"),
        (
            lambda: QuantLinear(3, 4, weight_bits=4, weight_quantizer=nn.Identity()),
            "weight_bits has no effect",
        ),
        (lambda: QuantLinear(3, 4, rounding="ewgs"), "rounding has no effect without bits"),
        (lambda: QuantLinear(3, 4, weight_bits=32, power_of_two=True), "power_of_two has no effect"),
        (lambda: QuantLinear(3, 4, weight_quantizer=4), "weight_quantizer must be a module, got 4"),
        (lambda: QuantReLU(), "QuantReLU needs either activation_bits or a quantizer; got neither"),
        (lambda: QuantReLU(nn.Identity(), activation_bits=4), "got both"),
        (lambda: QuantReLU(activation_bits=11), "activation_bits must be one of"),
        (lambda: QuantReLU(activation_bits=4, weight_bits=4), "weight_bits has no effect in a QuantReLU"),
    ],
)
def test_wrong_options(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_32_bits_are_float() -> None:
    layer: Any = QuantLinear(4, 4, weight_bits=32, activation_bits=32)
    assert type(layer.weight_quantizer) is type(layer.input_quantizer) is nn.Identity


def test_signs_of_activations() -> None:
    assert not QuantReLU(activation_bits=4).quantizer.grid.signed
    assert QuantLeakyReLU(negative_slope=0.2, activation_bits=4).quantizer.grid.signed
    assert QuantHardtanh(min_val=-1.0, activation_bits=4).quantizer.grid.signed
    assert not QuantHardtanh(min_val=0.0, activation_bits=4).quantizer.grid.signed


class Written(nn.Module):
    """A network that is written out of quantized layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = QuantConv2d(1, 4, 3, weight_bits=8, activation_bits=8, input_signed=False)
        self.relu = QuantReLU(activation_bits=4)
        self.second = QuantConv2d(4, 4, 3, groups=4, weight_bits=2)
        self.act = QuantReLU(activation_bits=3, activation_scale="learned")
        self.fc = QuantLinear(64, 3, weight_bits=4, weight_scale="learned")

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.first(x))
        return self.fc(self.act(self.second(x)).flatten(1))


X = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_a_network_of_layers_trains_packed_and_checkpointed_and_is_counted() -> None:
    torch.manual_seed(0)
    plain = Written()
    other = copy.deepcopy(plain)
    checkpoint_blocks(other, ["second"])
    plain(X).square().sum().backward()
    with packed_activations():
        loss = other(X).square().sum()
    loss.backward()
    for (name, p), q in zip(plain.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad), name
    rows = summary(plain, X).rows
    assert [(r.weight_bits, r.input_bits) for r in rows] == [(8, 8), (2, 4), (4, 3)]
    assert not summary(plain, X).left_float
    check_ready(plain)


def test_scales_are_frozen_and_listed() -> None:
    model = Written()
    model(X)
    assert [
        p is q
        for p, q in zip(
            scale_parameters(model),
            [model.act.quantizer.scale.value, model.fc.weight_quantizer.scale.value],
            strict=True,
        )
    ] == [True, True]
    freeze(model)
    before = {key: x.clone() for key, x in model.state_dict().items() if "scale" in key}
    model(10 * X)
    assert all(torch.equal(x, model.state_dict()[key]) for key, x in before.items())
    assert not any(p.requires_grad for p in scale_parameters(model))
    unfreeze(model)
    model(10 * X)
    assert any(not torch.equal(x, model.state_dict()[key]) for key, x in before.items())
    assert all(p.requires_grad for p in scale_parameters(model))


def test_a_hook_on_a_quantizer_sees_what_it_quantizes() -> None:
    torch.manual_seed(0)
    relu, other = QuantReLU(activation_bits=4), QuantReLU(activation_bits=4)
    seen: list[Tensor] = []
    relu.quantizer.register_forward_hook(lambda module, args, output: seen.append(args[0].detach()))
    x, y = torch.randn(50, requires_grad=True), None
    y = x.detach().clone().requires_grad_()
    a, b = relu(x), other(y)
    (a.sum() + b.sum()).backward()
    assert torch.equal(seen[0], x.detach().relu())
    assert torch.equal(a, b)
    assert torch.equal(x.grad, y.grad)


class Halves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).round() / 2


class Stated(Halves):
    grid = IntGrid(4)


class Shifted(Quantizer):
    def forward(self, x: Tensor, relu: bool = False) -> Tensor:
        return super().forward(x, relu) + 1


def test_a_quantizer_of_the_user_counts_or_is_named() -> None:
    model = Written().eval()
    model.fc.weight_quantizer = Stated()
    row = summary(model, X).rows[-1]
    assert (row.weight_bits, row.scale) == (4, "Stated/learned")
    model.fc.weight_quantizer = Halves()
    found = summary(model, X)
    assert found.left_float == {
        "fc": "its weight_quantizer, a Halves, states no grid: give it an IntGrid as `grid`"
    }
    for quantizer in (Halves(), Stated(), Shifted(IntGrid(4), ObservedScale(7, "max"))):
        model.fc.weight_quantizer = quantizer
        with pytest.raises(ValueError, match=r"fc\.weight_quantizer is a \w+ with a forward of its own"):
            check_ready(model)


def ends(config: Quantization) -> list[str]:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 3))
    return [row.scale for row in summary(quantize(net, config, X), X).rows]


def test_learned_scales_leave_the_wide_ends_observed() -> None:
    learned = {"weight_scale": "learned", "activation_scale": "learned"}
    assert ends(Quantization(**learned)) == ["observed/observed", "learned/learned", "observed/learned"]
    assert ends(Quantization(**learned, first_last_bits=4, input_bits=4)) == ["learned/learned"] * 3
    wide = Quantization(**learned, weight_bits=8, activation_bits=8)
    assert ends(wide) == ["observed/observed", "learned/learned", "observed/learned"]
    asked = Quantization(**learned, layers={"0": {"weight_scale": "learned", "activation_scale": "learned"}})
    assert ends(asked)[0] == "learned/learned"
    assert ends(Quantization(**learned, deployable=True))[0] == "observed 2^k/observed 2^k"


def test_every_layer_is_made_the_same_way() -> None:
    kinds = {direct for _, direct, _, _ in LAYERS.values()}
    assert kinds == {k for k in QuantLayer.__subclasses__() if not k.__name__.startswith("Deployable")}


@pytest.mark.slow
def test_a_network_of_layers_is_exported(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Written()
    model(X)
    model.eval()
    export_onnx(model, X, tmp_path / "model.onnx")  # verifies the file
    integers = IntegerModel(model, (1, 8, 8))
    assert torch.equal(torch.as_tensor(integers.predict(X)), model(X).argmax(1))


class LearnedStep(nn.Module):
    grid = IntGrid(4)

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.1))

    def forward(self, x: Tensor) -> Tensor:
        return (x / self.scale).round().clamp(-7, 7) * self.scale


def test_the_learned_scale_of_a_quantizer_of_the_user_is_listed() -> None:
    quantizer = LearnedStep()
    model = nn.Sequential(QuantLinear(4, 4, weight_quantizer=quantizer, input_quantizer=quantizer))
    assert [p is quantizer.scale for p in scale_parameters(model)] == [True]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: QuantReLU(4), "the quantizer of a QuantReLU must be a module, got 4; give bits by name"),
        (lambda: QuantReLU(True, activation_bits=4), "must be a module, got True|got both"),
        (lambda: QuantReLU(bits=4), "unknown argument of QuantReLU 'bits'"),
        (
            lambda: QuantConv2d(1, 2, 3, weigth_bits=4),
            "of QuantConv2d 'weigth_bits'; nearest: weight_",
        ),
        (lambda: QuantLinear(4, 4, first_last_bits=8), "unknown argument of QuantLinear 'first_last_bits'"),
    ],
)
def test_arguments_that_no_layer_has(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_a_scale_that_was_frozen_before_it_was_set() -> None:
    layer = QuantLinear(4, 4, weight_bits=4, activation_bits=4)
    freeze(layer)
    layer(torch.rand(2, 4))
    with pytest.warns(UserWarning, match="never set, so the outputs mean nothing; call unfreeze first, then"):
        layer.eval()(torch.rand(2, 4))

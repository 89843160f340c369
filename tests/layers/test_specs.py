"""Which quantizer goes where, and of which kind: activations, scales, transposed and re-used layers."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qat.layers import QuantActivation, QuantConvTranspose2d, Quantization, QuantLinear, quantize
from qat.quantizers import AsymmetricScale, DorefaScale, LearnedScale, ObservedScale, PactScale, PowerOfTwo

Levels = Callable[[nn.Module, Tensor], list[tuple[int, int]]]


def net(activation: nn.Module) -> nn.Sequential:
    """Three convolutions with activations between them."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"),
        activation,
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, groups=4, padding="same", bias=False),
        nn.ReLU6(),
        nn.Conv2d(4, 4, 1),
    )


@pytest.mark.parametrize(
    "activation", [nn.SiLU(inplace=True), nn.Hardswish(), nn.GELU(), nn.PReLU(4)], ids=str
)
def test_an_activation_that_feeds_a_layer_is_quantized_in_its_place(
    activation: nn.Module, levels: Levels
) -> None:
    kind = type(activation)
    model = net(activation)
    keys = list(model.state_dict())
    x = torch.rand(2, 3, 8, 8)
    quantize(model, Quantization(), x)
    assert model[1] is activation
    assert isinstance(activation, QuantActivation)
    assert isinstance(activation, kind)
    assert [key for key in model.state_dict() if "quantizer" not in key] == keys
    assert isinstance(model[3].input_quantizer, nn.Identity)
    assert (activation.quantizer.grid.signed, model[4].quantizer.grid.signed) == (True, False)
    (_, first), (inputs, middle), (inputs6, last) = levels(model, x)
    assert (first, middle, last) == (255, 15, 255)
    assert max(inputs, inputs6) <= 16
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_one_activation_serves_two_consumers() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.GELU()
            self.first, self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.act(self.first(x))
            return self.a(y) + self.b(y)

    model = quantize(Two(), Quantization(), torch.rand(2, 4))
    assert isinstance(model.act, QuantActivation)
    assert isinstance(model.a.input_quantizer, nn.Identity)
    assert isinstance(model.b.input_quantizer, nn.Identity)


def test_an_activation_that_feeds_no_layer_stays() -> None:
    gate = nn.Sigmoid()
    quantize(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), gate), Quantization(), torch.rand(2, 4)
    )
    assert type(gate) is nn.Sigmoid


class Decoder(nn.Module):
    """A transposed convolution called with an output size, and one layer that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2)
        self.twice = nn.Conv2d(6, 6, 1)
        self.last = nn.ConvTranspose2d(6, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(output_size=x.shape[-2:], input=F.relu(self.down(x)))
        return self.last(self.twice(self.twice(y)))


def test_transposed_and_re_used_layers(levels: Levels) -> None:
    x = torch.rand(2, 3, 8, 8)
    model = quantize(Decoder(), Quantization(), x)
    assert type(model.up) is QuantConvTranspose2d
    assert model.up.weight_quantizer.scale.value.shape == (6, 1, 1, 1)
    assert model(x).shape == x.shape
    seen = levels(model, x)
    assert [weights for _, weights in seen] == [255, 15, 15, 15, 255]
    assert all(inputs <= 16 for inputs, _ in seen[1:])
    assert model.twice.input_quantizer.scale.batches.item() == 4  # two steps, two calls each


def test_one_dimension(levels: Levels) -> None:
    x = torch.rand(2, 3, 16)
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Conv1d(4, 4, 3), nn.Conv1d(4, 2, 1))
    quantize(model, Quantization(), x)
    assert [weights for _, weights in levels(model, x)] == [255, 15, 255]


def test_double_eval_hooks_and_tied_weights(levels: Levels) -> None:
    model = net(nn.SiLU()).append(nn.Conv2d(4, 4, 1)).double().eval()
    model[6].weight = model[5].weight
    calls: list[str] = []
    model[1].register_forward_hook(lambda *_: calls.append("act"))
    model[3].register_forward_pre_hook(lambda *_: calls.append("conv"))
    x = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    quantize(model, Quantization(), x)
    calls.clear()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert model(x).dtype == torch.float64
    assert calls == ["act", "conv"]
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not any(module.training for module in model.modules())
    assert model[5].weight is model[6].weight
    assert all(inputs <= 16 for inputs, _ in levels(model, x)[1:])


def scales(config: Quantization, activation: nn.Module | None = None) -> tuple[nn.Module, ...]:
    """Of the middle layer's weight, of the activation before it (signed: SiLU) and of the ReLU6 after it."""
    model = quantize(net(activation or nn.SiLU()), config, torch.rand(2, 3, 8, 8))
    return model[3].weight_quantizer.scale, model[1].quantizer.scale, model[4].quantizer.scale


def kinds(config: Quantization) -> tuple[type, ...]:
    return tuple(type(scale) for scale in scales(config))


def test_scales_by_name() -> None:
    assert kinds(Quantization()) == (ObservedScale, ObservedScale, ObservedScale)
    assert kinds(Quantization(weight_scale="learned", activation_scale="learned")) == (LearnedScale,) * 3
    assert kinds(Quantization(weight_scale="dorefa")) == (DorefaScale, ObservedScale, ObservedScale)
    assert kinds(Quantization(power_of_two=True)) == (PowerOfTwo,) * 3


def test_pact_for_unsigned_activations_and_a_learned_scale_for_signed_ones() -> None:
    assert kinds(Quantization(activation_scale="pact")) == (ObservedScale, LearnedScale, PactScale)


def test_a_zero_point_where_values_can_be_negative() -> None:
    assert kinds(Quantization(asymmetric=True)) == (ObservedScale, AsymmetricScale, ObservedScale)


@pytest.mark.parametrize("scale", ["observed", "learned"])
@pytest.mark.parametrize("per_channel", [True, False])
def test_weight_scales_have_their_shape(scale: str, per_channel: bool) -> None:
    weights, _, _ = scales(Quantization(weight_scale=scale, per_channel=per_channel))
    assert weights.value.shape == ((4, 1, 1, 1) if per_channel else ())


def test_observers_by_name() -> None:
    # One weight is far larger than the others: the least squared error clips it, the maximum does not.
    results = {}
    for observer in ("max", "mse"):
        torch.manual_seed(0)
        layer = nn.Linear(256, 2)
        layer.weight.data[:, 0] = 0.25
        quantize(layer, Quantization(first_last_bits=4, weight_observer=observer), torch.rand(2, 256))
        results[observer] = layer.weight_quantizer.scale.value.max().item()
    assert results["max"] == torch.tensor(0.25 / 7).item()
    assert results["mse"] < 0.2 / 7
    _, act, _ = scales(Quantization(activation_observer="percentile"))
    assert act.observer.measure.__name__ == "percentile_magnitude"


def test_scales_by_layer() -> None:
    config = Quantization(layers={"3": {"weight_scale": "learned"}, "4": {"activation_scale": "pact"}})
    assert kinds(config) == (LearnedScale, ObservedScale, PactScale)
    # What a layer sets for its input holds for the activation that only this layer reads.
    config = Quantization(layers={"3": {"power_of_two": True}})
    assert kinds(config) == (PowerOfTwo, PowerOfTwo, ObservedScale)


def test_state_of_every_choice_loads_into_a_fresh_model() -> None:
    config = Quantization(weight_scale="learned", activation_scale="pact", power_of_two=True)
    x = torch.rand(4, 3, 8, 8)
    trained = quantize(net(nn.PReLU(4)), config, x)
    trained(x).sum().backward()
    fresh = quantize(net(nn.PReLU(4)), config, torch.zeros(2, 3, 8, 8))
    fresh.load_state_dict(trained.state_dict(), strict=True)
    assert torch.equal(fresh.eval()(x), trained.eval()(x))


def test_lazy_modules_are_refused_by_name() -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    x = torch.rand(2, 3, 8, 8)
    with pytest.raises(ValueError, match=r"lazy modules have no weights yet: 0, 3; run the model on a batch"):
        quantize(model, Quantization(), x)
    model(x)
    assert isinstance(quantize(model, Quantization(), x)[3], QuantLinear)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 1, 8, 8), r"through 0 \(Conv2d\): Given groups=1, weight of size \[4, 3, 3, 3\]"),
        ((2, 3, 1, 1), r"through 2 \(MaxPool2d\): .*Output size is too small"),
    ],
)
def test_an_example_of_the_wrong_shape_names_the_layer(shape: tuple[int, ...], message: str) -> None:
    model = net(nn.ReLU())
    model[0] = nn.Conv2d(3, 4, 3, padding=1)
    with pytest.raises(ValueError, match=message) as caught:
        quantize(model, Quantization(), torch.rand(shape))
    assert "\n" not in str(caught.value)


def test_where_the_model_itself_fails_it_is_named() -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(7, 7)

    with pytest.raises(
        ValueError, match=r"does not run through the model itself \(Wrong\): shape '\[7, 7\]'"
    ):
        quantize(Wrong(), Quantization(), torch.rand(2, 4))


def test_a_model_that_draws_random_numbers_takes_none_from_the_stream() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x + torch.rand_like(x))

    x, model = torch.rand(2, 4), Noisy()
    torch.manual_seed(3)
    stream = torch.rand(3)
    torch.manual_seed(3)
    quantize(model, Quantization(), x)
    assert torch.equal(torch.rand(3), stream)

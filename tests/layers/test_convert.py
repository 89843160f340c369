"""The conversion: every convolution and linear layer gets both operands on a grid."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from qat import Quantization, quantize
from qat.layers import QuantConv2d, QuantLinear, QuantReLU, summary
from qat.models import MODELS, LeNet, ResNet8, SmallCNN
from qat.quantizers import Quantizer

ALL_FLOAT = Quantization(32, 32, 32, 32)
Levels = Callable[[nn.Module, Tensor], list[tuple[int, int]]]
SHAPES = dict.fromkeys(MODELS, (3, 32, 32)) | dict.fromkeys(["lenet", "small_cnn"], (1, 28, 28))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("bits", [2, 4])
def test_every_operand_is_on_a_grid(name: str, bits: int, levels: Levels) -> None:
    torch.manual_seed(0)
    x = torch.rand(4, *SHAPES[name])
    model = quantize(MODELS[name](), Quantization(bits, bits), x)
    seen = levels(model, x)
    inputs, weights = [a for a, _ in seen], [b for _, b in seen]
    assert len(seen) == sum(isinstance(m, (nn.Conv2d, nn.Linear)) for m in model.modules())
    assert inputs[0] <= 256
    assert all(count <= 2**bits for count in inputs[1:])
    assert weights[0] <= 255
    assert weights[-1] <= 255
    assert all(count <= 2**bits - 1 for count in weights[1:-1])


@pytest.mark.parametrize("name", MODELS)
def test_at_32_bits_the_model_is_float_bit_for_bit(name: str) -> None:
    model = MODELS[name]()
    twin = quantize(copy.deepcopy(model), ALL_FLOAT, torch.zeros(2, *SHAPES[name]))
    x = torch.rand(4, *SHAPES[name])
    assert torch.equal(model(x), twin(x))
    assert model.state_dict().keys() == twin.state_dict().keys()


@pytest.mark.parametrize("name", MODELS)
def test_names_keys_and_parameters_stay(name: str) -> None:
    model = MODELS[name]()
    parameters = dict(model.named_parameters())
    keys = list(model.state_dict())
    quantize(model, Quantization(), torch.zeros(2, *SHAPES[name]))
    assert {n: id(p) for n, p in model.named_parameters()} == {n: id(p) for n, p in parameters.items()}
    assert [key for key in model.state_dict() if "quantizer" not in key] == keys


def test_one_quantizer_serves_all_consumers_of_an_activation() -> None:
    model = quantize(ResNet8(), Quantization(), torch.zeros(2, 3, 32, 32))
    block = model.blocks[1]
    assert isinstance(model.blocks[0].act2, QuantReLU)
    for consumer in (block.conv1, block.shortcut, block.conv2):
        assert isinstance(consumer.input_quantizer, nn.Identity)
    # The last activation feeds the average pool alone: the linear layer quantizes what comes out of it.
    assert type(model.blocks[2].act2) is nn.ReLU
    assert isinstance(model.fc.input_quantizer, Quantizer)
    assert not model.fc.input_quantizer.grid.signed


def grid(module: nn.Module) -> tuple[int, bool]:
    assert isinstance(module, Quantizer)
    return module.grid.bits, module.grid.signed


def test_bits_of_the_ends() -> None:
    model = quantize(LeNet(), Quantization(2, 3, 8, 7), torch.zeros(2, 1, 28, 28))
    first, second = model.blocks[0][0], model.blocks[1][0]
    assert grid(first.weight_quantizer) == (8, True)
    assert grid(first.input_quantizer) == (7, False)
    assert grid(second.weight_quantizer) == (2, True)
    assert grid(model.blocks[0][1].quantizer) == (3, False)
    assert grid(model.head[2].weight_quantizer) == (2, True)
    assert grid(model.head[4].weight_quantizer) == (8, True)


def test_signed_input() -> None:
    model = quantize(LeNet(), Quantization(input_signed=True), torch.zeros(2, 1, 28, 28))
    assert grid(model.blocks[0][0].input_quantizer) == (8, True)


def test_eight_bit_input_codes_are_the_pixel_bytes() -> None:
    pixels = torch.randint(0, 256, (2, 1, 28, 28), dtype=torch.uint8)
    pixels[0, 0, 0, 0] = 255
    x = pixels.float() / 255
    model = quantize(SmallCNN(), Quantization(), x)
    assert torch.equal(model.blocks[0].conv.input_quantizer.codes(x), pixels.int())


def test_layer_overrides_by_name() -> None:
    config = Quantization(
        layers={"blocks.1.*": {"weight_bits": 2, "activation_bits": 3}, "fc": {"weight_bits": 5}}
    )
    model = quantize(SmallCNN(), config, torch.zeros(2, 1, 28, 28))
    assert grid(model.blocks[1].conv.weight_quantizer) == (2, True)
    assert grid(model.blocks[1].act.quantizer) == (3, False)
    assert grid(model.fc.weight_quantizer) == (5, True)
    assert grid(model.blocks[2].conv.weight_quantizer) == (4, True)
    with pytest.raises(ValueError, match=r"layers pattern 'block\.9' matches nothing; nearest: blocks"):
        quantize(SmallCNN(), Quantization(layers={"block.9": {"weight_bits": 2}}), torch.zeros(2, 1, 28, 28))


def test_a_layer_can_stay_float() -> None:
    config = Quantization(layers={"blocks.1.conv": {"weight_bits": 32}})
    model = quantize(SmallCNN(), config, torch.zeros(2, 1, 28, 28))
    assert type(model.blocks[1].conv) is nn.Conv2d


def test_per_tensor_weights() -> None:
    model = quantize(SmallCNN(), Quantization(per_channel=False), torch.zeros(2, 1, 28, 28))
    assert model.blocks[1].conv.weight_quantizer.scale.value.shape == ()


class Odd(nn.Module):
    """Functional ReLU, a re-used module, a sum, a concatenation, a linear bottleneck, two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.once = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.functional = nn.Conv2d(4, 4, 3, padding=1)
        self.reused = nn.Conv2d(4, 4, 3, padding=1)
        self.sum = nn.Conv2d(4, 4, 1)
        self.cat = nn.Conv2d(8, 4, 1)
        self.bottleneck = nn.Conv2d(4, 4, 1)
        self.pooled = nn.Conv2d(4, 4, 1)
        self.head1 = nn.Linear(16, 2)
        self.head2 = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a = F.relu(self.first(x))
        b = self.relu(self.functional(a))
        c = self.relu(self.reused(b))
        d = self.sum(a + c)
        e = self.cat(torch.cat([a, c], dim=1))
        f = self.once(self.bottleneck(d) + e)
        g = self.pooled(self.pool(f)).flatten(1)
        return self.head1(g[:, :16]), self.head2(F.sigmoid(g[:, :16]))


def test_structure_decides_who_quantizes_and_the_sign() -> None:
    x = torch.rand(2, 3, 4, 4)
    model = quantize(Odd(), Quantization(), x)
    assert isinstance(model, Odd)
    assert type(model.relu) is nn.ReLU  # called twice: one scale would not do
    assert isinstance(model.once, QuantReLU)
    expected = {
        "functional": (4, False),
        "reused": (4, False),
        "sum": (4, False),
        "cat": (4, False),
        "bottleneck": (4, True),
        "head1": (4, True),
        "head2": (4, False),
    }
    assert {name: grid(getattr(model, name).input_quantizer) for name in expected} == expected
    assert isinstance(model.pooled.input_quantizer, nn.Identity)  # max-pool keeps the grid
    assert grid(model.head1.weight_quantizer)[0] == grid(model.head2.weight_quantizer)[0] == 8
    assert grid(model.pooled.weight_quantizer)[0] == 4


def test_every_operand_of_the_odd_model_is_on_a_grid(levels: Levels) -> None:
    x = torch.rand(2, 3, 4, 4)
    model = quantize(Odd(), Quantization(2, 2), x)
    seen = levels(model, x)
    assert len(seen) == 9
    assert all(inputs <= 4 and weights <= 3 for inputs, weights in seen[1:-2])


def test_everything_is_as_before_but_the_scales() -> None:
    model = SmallCNN(dropout=0.5)
    model.eval()
    model.blocks[0].train()
    modes = [m.training for m in model.modules()]
    before = copy.deepcopy(model.state_dict())
    example = torch.rand(2, 1, 28, 28)
    torch.manual_seed(3)
    stream = torch.rand(3)
    torch.manual_seed(3)
    quantize(model, Quantization(), example)
    assert torch.equal(torch.rand(3), stream)
    kept = [m for n, m in model.named_modules() if "quantizer" not in n]
    assert [m.training for m in kept] == modes
    assert all(torch.equal(model.state_dict()[key], value) for key, value in before.items())
    assert not model.fc.weight_quantizer.training
    assert model.blocks[0].act.quantizer.training
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


def test_first_scales_are_those_of_a_training_pass() -> None:
    torch.manual_seed(0)
    x = torch.rand(8, 1, 28, 28)
    model = SmallCNN()
    float_activation = model.blocks[0].act(model.blocks[0].bn(model.blocks[0].conv(x)))
    quantize(model, Quantization(), x)
    assert model.blocks[0].act.quantizer.scale.value.item() == (float_activation.max() / 15).item()
    assert model.blocks[0].act.quantizer.scale.batches.item() == 0


def test_zeros_rebuild_a_trained_model() -> None:
    torch.manual_seed(0)
    x = torch.rand(8, 1, 28, 28)
    trained = quantize(SmallCNN(), Quantization(), x)
    trained(x).sum().backward()
    fresh = quantize(SmallCNN(), Quantization(), torch.zeros(2, 1, 28, 28))
    fresh.load_state_dict(trained.state_dict(), strict=True)
    assert torch.equal(fresh.eval()(x), trained.eval()(x))


def test_hooks_and_tied_weights_survive() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    calls: list[int] = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    quantize(model, Quantization(), torch.rand(2, 4))
    calls.clear()
    model(torch.rand(2, 4))
    assert isinstance(model[0], QuantLinear)
    assert model[0].weight is model[2].weight
    assert calls == [1]


def test_a_single_layer_is_a_model() -> None:
    layer = quantize(nn.Conv2d(3, 4, 3), Quantization(), torch.rand(2, 3, 8, 8))
    assert isinstance(layer, QuantConv2d)


def test_several_arguments() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.fc(a + b)

    model = quantize(Two(), Quantization(), (torch.rand(2, 4), torch.rand(2, 4)))
    assert grid(model.fc.input_quantizer) == (8, False)


@pytest.mark.parametrize(
    ("model", "example", "message"),
    [
        (
            nn.Sequential(nn.ReLU()),
            torch.rand(2, 4),
            r"ran no plain nn\.Conv1d, nn\.Conv2d, nn\.ConvTranspose2d, nn\.Linear: there is nothing to",
        ),
        (nn.Linear(4, 2), torch.rand(1, 4), "example must start with a batch of at least 2 samples, got"),
        (nn.Linear(4, 2), (), "example must be a tensor, or a tuple that starts with one; got nothing"),
        (nn.Linear(4, 2), [torch.rand(2, 4)], "starts with one; got list"),
        (nn.Linear(4, 2), torch.rand(2, 4).numpy(), "starts with one; got ndarray"),
    ],
)
def test_refused(model: nn.Module, example: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantize(model, Quantization(), example)


def test_twice_is_refused() -> None:
    model = quantize(SmallCNN(), Quantization(), torch.zeros(2, 1, 28, 28))
    with pytest.raises(ValueError, match="quantized already"):
        quantize(model, Quantization(), torch.zeros(2, 1, 28, 28))


def test_a_failing_example_leaves_the_model_as_it_was() -> None:
    model = SmallCNN().eval()
    with pytest.raises(
        ValueError, match=r"example does not run through blocks\.0\.conv \(Conv2d\): .* expected input"
    ):
        quantize(model, Quantization(), torch.zeros(2, 3, 28, 28))
    assert not any(module.training for module in model.modules())
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    assert not any(isinstance(module, Quantizer) for module in model.modules())


def test_true_gradients_reach_nothing_upstream_of_a_quantizer() -> None:
    model = quantize(SmallCNN(), Quantization(rounding="zero"), torch.rand(2, 1, 28, 28))
    model(torch.rand(4, 1, 28, 28)).square().sum().backward()
    learning = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    assert learning == {"fc.bias"}


class Line(nn.Module):
    """Two 3x3 convolutions with something between, before, or around them."""

    def __init__(self, between: nn.Module | None = None, before: nn.Module | None = None) -> None:
        super().__init__()
        self.before = before or nn.Identity()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.between = between or nn.Identity()
        self.second = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.between(self.first(self.before(x))))


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx, g: Tensor) -> Tensor:
        return g


def write_into(x: Tensor) -> Tensor:
    y = F.relu(x)
    y[:, 0] = -1.0
    return y


def write_through_a_view(x: Tensor) -> Tensor:
    y = F.relu(x)
    y.flatten(1)[:, 3:].sub_(0.5)
    return y


UNSIGNED_BETWEEN = [
    nn.ReLU6(),
    nn.Hardtanh(0.0, 1.0),
    nn.Sigmoid(),
    nn.Hardsigmoid(),
    nn.Softplus(),
    nn.Softmax(1),
    nn.Sequential(nn.Sigmoid(), nn.AvgPool2d(2)),
    Apply(lambda x: F.relu(x) * 2.0 + F.relu(x).mul(0.5)),
    Apply(lambda x: torch.cat([F.relu(x[:, :2]), torch.sigmoid(x[:, 2:])], 1)),
    Apply(lambda x: x.clamp(min=0)),
    Apply(lambda x: torch.clamp(x, 0, 6)),
    Apply(lambda x: x.clamp_min(0.0)),
    Apply(lambda x: F.relu6(x + 3) / 6),
    Apply(lambda x: torch.maximum(F.relu(x), x.abs())),
    Apply(lambda x: x.square().sqrt().exp()),
    Apply(lambda x: F.interpolate(F.relu(x), scale_factor=2, mode="bilinear")),
    Apply(lambda x: F.relu(x).double().float().type_as(x).to(x.dtype)),
]
SIGNED_BETWEEN = [
    nn.SiLU(),
    nn.Hardswish(),
    nn.GELU(),
    nn.ELU(),
    nn.Mish(),
    nn.Tanh(),
    nn.LeakyReLU(),
    nn.PReLU(4),
    nn.Hardtanh(),
    nn.BatchNorm2d(4),
    Apply(lambda x: F.relu(x) * -1.0),
    Apply(lambda x: torch.add(F.relu(x), F.relu(x), alpha=-2)),
    Apply(lambda x: F.relu(x) - 0.5),
    Apply(lambda x: F.interpolate(F.relu(x), scale_factor=2, mode="bicubic")),
    Apply(write_into),
    Apply(write_through_a_view),
    Apply(Custom.apply),
    Apply(lambda x: x.clamp(max=0)),
    Apply(lambda x: x.clamp(-1, 1)),
    Apply(lambda x: torch.clamp(x, min=x.mean())),
    Apply(lambda x: F.relu(x) / -2.0),
]


def feeds_second(model: nn.Module) -> nn.Module:
    """What quantizes the input of the second convolution: an activation module, or itself."""
    return getattr(model.between, "quantizer", model.second.input_quantizer)


@pytest.mark.parametrize("between", UNSIGNED_BETWEEN, ids=str)
def test_what_cannot_be_negative_is_unsigned(between: nn.Module) -> None:
    model = quantize(Line(between), Quantization(), torch.rand(2, 3, 8, 8))
    assert grid(feeds_second(model)) == (4, False)


@pytest.mark.parametrize("between", SIGNED_BETWEEN, ids=str)
def test_everything_else_is_signed(between: nn.Module) -> None:
    model = quantize(Line(between), Quantization(), torch.rand(2, 3, 8, 8))
    assert grid(feeds_second(model)) == (4, True)


KEEP = [
    nn.MaxPool2d(2),
    nn.Dropout(0.5),
    nn.Dropout2d(0.5),
    nn.ChannelShuffle(2),
    nn.ZeroPad2d(1),
    nn.ReflectionPad2d(1),
    nn.ReplicationPad2d(1),
    Apply(lambda x: F.pad(x, (1, 1))),
    Apply(lambda x: x.view(2, 4, -1).transpose(1, 2).permute(0, 2, 1).reshape(x.shape)),
    Apply(lambda x: torch.flatten(x, 2).unflatten(2, (8, 8)).contiguous()),
    Apply(lambda x: x.unsqueeze(0).squeeze(0).clone()),
    Apply(lambda x: x.chunk(1, 1)[0].split(4, 1)[0]),
    Apply(lambda x: x.to(x.dtype).float().type_as(x)),  # all three return x itself
    nn.PixelShuffle(1),
    nn.Upsample(scale_factor=2),
    Apply(lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact")),
    Apply(lambda x: x.roll(1, 2).flip(3).rot90(1, (2, 3)).narrow(2, 0, 4).movedim(2, 3).swapaxes(2, 3)),
    Apply(lambda x: x.repeat(1, 1, 2, 1).tile(1, 1, 1, 2).repeat_interleave(2, 2)),
    Apply(lambda x: x.index_select(2, torch.tensor([3, 0, 1]))),
]


def shift_a_view(x: Tensor) -> Tensor:
    x.view(-1).add_(0.3)
    return x


LEAVE = [
    *(nn.AvgPool2d(2), nn.ConstantPad2d(1, 0.3), Apply(lambda x: x + x)),
    *(nn.Upsample(scale_factor=2, mode="bilinear"), Apply(shift_a_view)),
]


@pytest.mark.parametrize("keep", KEEP, ids=str)
def test_what_keeps_the_grid(keep: nn.Module) -> None:
    model = quantize(Line(nn.Sequential(nn.ReLU(), keep)), Quantization(), torch.rand(2, 3, 8, 8))
    assert isinstance(model.between[0], QuantReLU)
    assert isinstance(model.second.input_quantizer, nn.Identity)


@pytest.mark.parametrize("leave", LEAVE, ids=str)
def test_what_leaves_the_grid(leave: nn.Module) -> None:
    model = quantize(Line(nn.Sequential(nn.ReLU(), leave)), Quantization(), torch.rand(2, 3, 8, 8))
    assert type(model.between[0]) is nn.ReLU
    assert isinstance(model.second.input_quantizer, Quantizer)


@pytest.mark.parametrize(
    ("before", "signed"),
    [
        (nn.AvgPool2d(2), False),
        (Apply(lambda x: (x - 0.5) / 0.2), True),
        (Apply(Custom.apply), False),
    ],
    ids=str,
)
def test_the_networks_input_has_its_own_bits_whatever_was_done_to_it(before: nn.Module, signed: bool) -> None:
    model = quantize(Line(before=before), Quantization(input_bits=7), torch.rand(2, 3, 8, 8))
    assert grid(model.first.input_quantizer) == (7, signed)
    assert grid(model.second.input_quantizer) == (4, True)


def test_an_activation_before_the_first_layer_gives_the_networks_input() -> None:
    model = quantize(Line(before=nn.ReLU()), Quantization(input_bits=7), torch.rand(2, 3, 8, 8))
    assert grid(model.before.quantizer) == (7, False)
    assert isinstance(model.first.input_quantizer, nn.Identity)


def test_a_custom_function_does_not_make_the_layer_before_it_last() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), Apply(Custom.apply), nn.Linear(4, 2))
    quantize(model, Quantization(), torch.rand(2, 4))
    assert [grid(model[i].weight_quantizer)[0] for i in (0, 1, 3)] == [8, 4, 8]


def test_a_last_layer_whose_input_came_from_nowhere_is_last() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), Apply(torch.vmap(torch.relu)), nn.Linear(4, 2))
    quantize(model, Quantization(), torch.rand(2, 4))
    assert [grid(model[i].weight_quantizer)[0] for i in (0, 1, 3)] == [8, 4, 8]


def test_a_layer_that_feeds_itself_and_no_other_is_last() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model.append(model[2])
    quantize(model, Quantization(), torch.rand(2, 4))
    assert [grid(model[i].weight_quantizer)[0] for i in (0, 1, 2)] == [8, 4, 8]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.lstm(x)[0])


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Sequential(nn.Conv3d(1, 2, 1), nn.Flatten(), nn.Linear(16, 2)), torch.rand(2, 1, 2, 2, 2)),
        (nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.ReLU(), nn.Linear(4, 2)), torch.rand(2, 4)),
        (Recurrent(), torch.rand(2, 3, 4)),
    ],
)
@pytest.mark.filterwarnings("ignore:left float")
def test_what_a_float_layer_gives_is_not_the_networks_input(model: nn.Module, x: Tensor) -> None:
    quantize(model, Quantization(input_bits=7), x)
    (quantizer,) = (m for n, m in model.named_modules() if isinstance(m, Quantizer) and "weight" not in n)
    assert quantizer.grid.bits == 4


class Residual(nn.Module):
    """An in-place ReLU whose input variable is read afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.shortcut = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.relu(x)
        return self.conv(y) + self.shortcut(input=x)


def test_who_reads_around_an_in_place_activation_is_not_left_float(levels: Levels) -> None:
    x = torch.rand(2, 3, 8, 8)
    model = quantize(Residual(), Quantization(2, 2), x)
    assert all(inputs <= 4 for inputs, _ in levels(model, x)[1:])


def test_the_bits_of_a_layer_hold_for_an_activation_that_only_it_reads() -> None:
    config = Quantization(layers={"second": {"activation_bits": 2}})
    model = quantize(Line(nn.ReLU()), config, torch.rand(2, 3, 8, 8))
    assert grid(model.between.quantizer) == (2, False)
    config = Quantization(layers={"second": {"activation_bits": 32}})
    model = quantize(Line(nn.ReLU()), config, torch.rand(2, 3, 8, 8))
    assert type(model.between) is nn.ReLU
    assert isinstance(model.second.input_quantizer, nn.Identity)


def test_a_layers_own_bits_where_others_read_the_same_activation() -> None:
    config = Quantization(layers={"blocks.1.shortcut": {"activation_bits": 2}})
    model = quantize(ResNet8(), config, torch.rand(2, 3, 32, 32))
    assert grid(model.blocks[0].act2.quantizer) == (4, False)
    assert grid(model.blocks[1].shortcut.input_quantizer) == (2, False)
    assert isinstance(model.blocks[1].conv1.input_quantizer, nn.Identity)
    config = Quantization(layers={"blocks.1.shortcut": {"activation_bits": 32}})
    with pytest.raises(
        ValueError, match=r"shortcut cannot have activation_bits 32, .* output of blocks\.0\.act2"
    ):
        quantize(ResNet8(), config, torch.rand(2, 3, 32, 32))


def test_the_bits_of_an_activation_hold_for_its_consumers() -> None:
    config = Quantization(layers={"between": {"activation_bits": 3}, "second": {"weight_bits": 5}})
    model = quantize(Line(nn.ReLU()), config, torch.rand(2, 3, 8, 8))
    assert grid(model.between.quantizer) == (3, False)
    assert isinstance(model.second.input_quantizer, nn.Identity)


def test_a_layers_own_bits_count_where_they_are_those_of_the_rest_and_the_activation_has_others() -> None:
    for bits in (8, 32):
        layers = {"between": {"activation_bits": bits}, "second": {"activation_bits": 4}}
        model = quantize(Line(nn.ReLU()), Quantization(layers=layers), torch.rand(2, 3, 8, 8))
        assert grid(model.second.input_quantizer) == (4, False)
    layers = {"between": {"activation_bits": 8}, "second": {"weight_bits": 5, "rounding": "ste"}}
    model = quantize(Line(nn.ReLU()), Quantization(layers=layers), torch.rand(2, 3, 8, 8))
    assert isinstance(model.second.input_quantizer, nn.Identity)


def test_an_activation_that_feeds_nothing_cannot_be_named() -> None:
    config = Quantization(layers={"blocks.3.act": {"activation_bits": 2}})
    with pytest.raises(ValueError, match=r"layers pattern 'blocks\.3\.act' matches nothing"):
        quantize(SmallCNN(), config, torch.rand(2, 1, 28, 28))


def test_what_stays_float_is_said() -> None:
    class Mine(nn.Conv2d):
        pass

    model = nn.Sequential(nn.Conv2d(3, 4, 3), Mine(4, 4, 3))
    with pytest.warns(UserWarning, match=r"left float, .*: 1$"):
        quantize(model, Quantization(), torch.rand(2, 3, 8, 8))


def test_a_hook_that_changes_what_an_activation_gave_takes_it_off_the_grid(levels: Levels) -> None:
    x = torch.rand(2, 3, 8, 8)
    model = Line(nn.ReLU())
    model.between.register_forward_hook(lambda module, args, output: output - 0.1)
    quantize(model, Quantization(2, 2), x)
    assert grid(model.second.input_quantizer) == (2, True)
    model = Line(nn.ReLU())
    model.between.register_forward_hook(lambda module, args, output: None)
    quantize(model, Quantization(2, 2), x)
    assert grid(model.between.quantizer) == (2, False)


def test_a_layer_whose_forward_was_replaced_is_not_plain() -> None:
    model = Line(nn.ReLU())
    plain = model.second.forward
    model.second.forward = lambda x: plain(x) * 2  # as accelerate's hooks do
    relu = model.between.forward
    model.between.forward = lambda x: relu(x)
    with pytest.warns(UserWarning, match=r"left float, .*: second$"):
        quantize(model, Quantization(), torch.rand(2, 3, 8, 8))
    assert type(model.between) is nn.ReLU
    assert summary(model, torch.rand(2, 3, 8, 8)).left_float == {"second": "its forward was replaced"}


def test_a_transformers_fast_path_does_not_go_around_the_quantizers() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x = torch.randn(2, 3, 8)
    with pytest.warns(UserWarning, match=r"left float, .*: self_attn\.out_proj$"):
        quantize(layer, Quantization(2, 2, 2, 2, input_signed=True), x)
    layer.eval()
    with torch.no_grad():
        fast = layer(x)
    torch.testing.assert_close(fast, layer(x))  # torch's own attention without grad rounds differently


def test_a_compiled_model_is_looked_at_uncompiled() -> None:
    model = torch.compile(Line(nn.ReLU()), backend="eager")
    torch._dynamo.utils.counters.clear()
    quantize(model, Quantization(), torch.rand(2, 3, 8, 8))
    assert not torch._dynamo.utils.counters["frames"]
    assert isinstance(model._orig_mod.between, QuantReLU)


def test_functional_dropout_is_off_while_the_example_runs() -> None:
    x = torch.rand(2, 3, 8, 8)
    model = Line(Apply(lambda y: F.dropout(F.relu(y), 0.5)))
    largest = F.relu(model.first(x)).max()
    quantize(model, Quantization(), x)
    assert model.between.functional["relu_0"].quantizer.scale.value.item() == (largest / 15).item()


def test_a_layer_that_runs_twice_starts_from_both_inputs() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x) + self.conv(-5 * x)

    x = torch.rand(2, 3, 8, 8)
    model = quantize(Twice(), Quantization(), x)
    assert grid(model.conv.input_quantizer) == (8, True)
    assert model.conv.input_quantizer.scale.value.item() == (5 * x.max() / 127).item()


def test_negative_inputs_are_warned_of_where_they_would_be_clipped() -> None:
    with pytest.warns(UserWarning, match="negative values, which input_signed=False clips to 0"):
        quantize(nn.Linear(4, 2), Quantization(), torch.randn(8, 4))
    quantize(nn.Linear(4, 2), Quantization(input_signed=True), torch.randn(8, 4))


def test_inference_mode_is_refused() -> None:
    model = nn.Linear(4, 2)
    with torch.inference_mode(), pytest.raises(ValueError, match="cannot run in inference mode"):
        quantize(model, Quantization(), torch.rand(2, 4))
    assert type(model) is nn.Linear

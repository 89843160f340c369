"""What `deployable` accepts before the training is what the export has a form for after it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qat.export import IntegerModel
from qat.layers import Quantization, quantize


class Net(nn.Module):
    """A convolution, something between, and a linear layer; `head` has another number of inputs."""

    def __init__(
        self, between: Callable[..., Tensor] | nn.Module, inputs: int = 256, last: Any = None, **conv: Any
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, **({"kernel_size": 3, "padding": 1} | conv))
        self.bn, self.relu = nn.BatchNorm2d(4), nn.ReLU()
        self.between = between
        self.fc = nn.Linear(inputs, 3)
        self.last = last or (lambda x: x)

    def forward(self, x: Tensor) -> Any:
        x = self.between(self.relu(self.bn(self.conv(x))))
        return self.last(self.fc(x.flatten(1)))


class Clamped(torch.autograd.Function):
    """Of an operation that has a form, but with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.relu()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


class Auxiliary(Net):
    """A head that runs in training only has any operation; so has what nothing reads."""

    def forward(self, x: Tensor) -> Any:
        y = self.relu(self.bn(self.conv(x)))
        y.sigmoid()
        if self.training:
            F.silu(y)
        return self.fc(y.flatten(1))


class Gate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * F.adaptive_avg_pool2d(x, 1).sigmoid()


FORMS = {
    "nothing": lambda: Net(nn.Identity()),
    "max-pool": lambda: Net(nn.MaxPool2d(2), 64),
    "max-pool function": lambda: Net(lambda x: F.max_pool2d(x, 3, 2, padding=1), 64),
    "average": lambda: Net(nn.AvgPool2d(2), 64),
    "average function": lambda: Net(lambda x: F.avg_pool2d(x, (2, 2)), 64),
    "global": lambda: Net(nn.AdaptiveAvgPool2d(1), 4),
    "global function": lambda: Net(lambda x: F.adaptive_avg_pool2d(x, (1, 1)), 4),
    "mean": lambda: Net(lambda x: x.mean((2, 3)), 4),
    "mean that keeps": lambda: Net(lambda x: torch.mean(x, dim=[-1, -2], keepdim=True), 4),
    "view": lambda: Net(lambda x: x.view(x.size(0), -1)),
    "reshape": lambda: Net(lambda x: x.reshape(x.shape[0], 256)),
    "flatten": lambda: Net(lambda x: torch.flatten(x, 1)),
    "Flatten": lambda: Net(nn.Flatten()),
    "sum": lambda: Net(lambda x: x + F.max_pool2d(x, 3, 1, 1)),
    "dropout": lambda: Net(nn.Dropout(0.5)),
    "dropout function": lambda: Net(lambda x: F.dropout(x, 0.5, False)),
    "relu6": lambda: Net(nn.ReLU6()),
    "hardtanh": lambda: Net(lambda x: F.hardtanh(x, 0.0, 2.0)),
    "same": lambda: Net(nn.Identity(), padding="same"),
    "valid": lambda: Net(nn.Identity(), 144, padding="valid"),
    "auxiliary": lambda: Auxiliary(nn.Identity()),
    "custom": lambda: Net(Clamped.apply),
    "contiguous": lambda: Net(lambda x: x.contiguous()),
}
OBSTACLES = {
    "SiLU": (lambda: Net(nn.SiLU()), "between: SiLU (use ReLU, ReLU6 or Hardtanh)"),
    "silu": (lambda: Net(F.silu), "the model itself: silu (use ReLU, ReLU6 or Hardtanh)"),
    "Hardswish": (lambda: Net(nn.Hardswish()), "between: Hardswish"),
    "GELU": (lambda: Net(nn.GELU()), "between: GELU"),
    "sigmoid": (lambda: Net(torch.sigmoid), "sigmoid"),
    "Tanh": (lambda: Net(nn.Tanh()), "between: Tanh"),
    "LeakyReLU": (lambda: Net(nn.LeakyReLU()), "between: LeakyReLU"),
    "PReLU": (lambda: Net(nn.PReLU()), "between: PReLU"),
    "softmax": (lambda: Net(nn.Identity(), last=nn.Softmax(1)), "last: Softmax"),
    "cat": (lambda: Net(lambda x: torch.cat([x, x], 1), 512), "cat (add the tensors instead)"),
    "transpose": (lambda: Net(lambda x: x.transpose(2, 3)), "transpose"),
    "mean of channels": (lambda: Net(lambda x: x.mean(1), 64), "the model itself: mean"),
    "times": (lambda: Net(lambda x: x * 2), "mul"),
    "plus": (lambda: Net(lambda x: x + 1), "a sum with a number"),
    "broadcast": (lambda: Net(lambda x: x + x.mean((2, 3), keepdim=True)), "different shapes"),
    "gate": (lambda: Net(Gate()), "between: mul"),
    "ceil": (lambda: Net(nn.MaxPool2d(3, ceil_mode=True), 36), "between: max-pooling with ceil_mode"),
    "padded average": (lambda: Net(nn.AvgPool2d(3, 1, 1)), "between: average pooling with padding"),
    "adaptive": (lambda: Net(nn.AdaptiveAvgPool2d(2), 16), "between: adaptive average pooling to 2"),
    "reflect": (lambda: Net(nn.Identity(), padding_mode="reflect"), "conv: padding_mode reflect (use zeros)"),
    "interpolate": (lambda: Net(lambda x: F.interpolate(x, scale_factor=0.5), 64), "interpolate"),
    "tuple": (lambda: Net(nn.Identity(), last=lambda x: (x, x)), "the output: a tuple"),
    "untraceable": (lambda: Net(lambda x: x if x.sum() > -1 else -x), "torch.fx cannot trace"),
    "dropout that stays": (lambda: Net(lambda x: F.dropout(x, 0.5)), "dropout in eval mode (use nn.Dropout"),
    "layer norm": (lambda: Net(nn.LayerNorm([4, 8, 8])), "between: LayerNorm"),
    "flatten all": (lambda: Net(lambda x: x.flatten(2).flatten(1)), "flatten of the axes 2 to -1"),
}
IMAGES = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def build(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


@pytest.mark.parametrize("make", FORMS.values(), ids=FORMS)
def test_what_has_a_form_is_accepted_and_lowered(make: Callable[[], nn.Module]) -> None:
    model = quantize(build(make), Quantization(deployable=True), IMAGES)
    model(IMAGES)
    integers = IntegerModel(model.eval(), (1, 8, 8))
    assert not integers.program.rounded
    if integers.program.is_exact:
        assert integers.compare(IMAGES).logits.equal == len(IMAGES)


@pytest.mark.parametrize(("make", "message"), OBSTACLES.values(), ids=OBSTACLES)
def test_what_has_none_is_refused_before_the_training(make: Callable[[], nn.Module], message: str) -> None:
    model = build(make)
    kinds, state = [type(m) for m in model.modules()], {k: x.clone() for k, x in model.state_dict().items()}
    with pytest.raises(ValueError) as caught:
        quantize(model, Quantization(deployable=True), IMAGES)
    error = str(caught.value)
    assert message in error
    assert error.endswith("; or set deployable: onnx, for ONNX files alone")
    assert "\n" not in error
    assert [type(m) for m in model.modules()] == kinds
    assert all(torch.equal(x, state[key]) for key, x in model.state_dict().items())


@pytest.mark.parametrize("make", [make for make, _ in OBSTACLES.values()], ids=OBSTACLES)
def test_for_onnx_alone_it_is_accepted_and_the_integers_refuse_it(make: Callable[[], nn.Module]) -> None:
    model = quantize(build(make), Quantization(deployable="onnx"), IMAGES)
    model(IMAGES)
    with pytest.raises(ValueError, match="integers"):
        IntegerModel(model.eval(), (1, 8, 8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": {"fc": {"weight_bits": 32}}}, "weight_bits must be 1 to 8 with deployable"),
        ({"layers": {"conv": {"activation_bits": 16}}}, "activation_bits must be 1 to 8 with deployable"),
        ({"input_bits": 1, "input_signed": True}, "conv: an input on the grid"),
        ({"rounding": torch.floor}, "conv: a rounding that does not round half to even"),
    ],
)
def test_options_without_a_form(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantize(Net(nn.Identity()), Quantization(deployable=True, **options), IMAGES)


@pytest.mark.parametrize("wrong", ["onx", 1, None, "true"])
def test_other_values_of_deployable(wrong: Any) -> None:
    with pytest.raises(ValueError, match="deployable must be true, false or onnx"):
        Quantization(deployable=wrong)

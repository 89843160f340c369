"""BatchNorm folded into the layer before it: the same function without it."""

import copy
import gc
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from qat.layers import Folding, Quantization, fold_batchnorm, quantize
from qat.models import ResNet8

IMAGES, ROWS, SERIES = (3, 4, 6, 6), (3, 4), (3, 4, 9)


def randomised(model: nn.Module) -> nn.Module:
    """In double precision, with random statistics; one gamma is 0, some are negative."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if module.running_mean is not None:
                module.running_mean.normal_()
                module.running_var.uniform_(0.1, 2)
            if module.affine:
                module.weight.data.normal_()
                module.weight.data[0] = 0
                module.bias.data.normal_()
    return model.double().eval()


def check(model: nn.Module, x: Tensor) -> Folding:
    """Fold, and compare with the model before."""
    before = copy.deepcopy(model)
    done = fold_batchnorm(model, x)
    expected, got = before(x), model(x)
    assert (got - expected).abs().max() <= 1e-12 * expected.abs().max()
    single = before.float()(x.float())
    assert (model.float()(x.float()) - single).abs().max() <= 1e-5 * single.abs().max()
    return done


PAIRS = [
    (nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), IMAGES),
    (nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6, eps=0.1), IMAGES),
    (nn.Conv2d(4, 8, 3, groups=2, padding="same", padding_mode="circular"), nn.BatchNorm2d(8), IMAGES),
    (nn.Conv2d(4, 4, 3, groups=4, bias=False), nn.BatchNorm2d(4, affine=False), IMAGES),
    (nn.ConvTranspose2d(4, 6, 3), nn.BatchNorm2d(6), IMAGES),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, bias=False), nn.BatchNorm2d(6), IMAGES),
    (nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), SERIES),
    (nn.Linear(4, 6), nn.BatchNorm1d(6), ROWS),
    (nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6, affine=False), ROWS),
]


@pytest.mark.parametrize(("layer", "norm", "shape"), PAIRS)
def test_a_pair_is_one_layer(layer: nn.Module, norm: nn.Module, shape: tuple[int, ...]) -> None:
    model = randomised(nn.Sequential(copy.deepcopy(layer), copy.deepcopy(norm)))
    done = check(model, torch.randn(shape, dtype=torch.float64))
    assert done == Folding({"1": "0"}, {})
    assert type(model[1]) is nn.Identity
    assert list(model.state_dict()) == ["0.weight", "0.bias"]


class Pair(nn.Module):
    """A convolution and a BatchNorm, and one more thing that reads or changes them, by `case`."""

    def __init__(self, case: str) -> None:
        super().__init__()
        self.case = case
        self.conv = nn.Conv2d(4, 4, 1)
        self.bn = nn.BatchNorm2d(4)
        self.other = nn.Conv2d(4, 4, 1)
        self.fc = nn.Linear(6, 6)
        if case == "shared":
            self.other.weight = self.conv.weight
        if case == "shared_memory":
            self.double()  # now, for it gives every parameter memory of its own
            self.other.weight = nn.Parameter(self.conv.weight.data)
        for name in ("conv", "bn"):
            if case == f"{name}_forward":
                module = getattr(self, name)
                module.forward = lambda x, plain=module.forward: 2 * plain(x)
        if case == "buffer":
            self.register_buffer("weight", self.conv.weight)
        if case == "sequence":
            self.bn = nn.BatchNorm1d(4)
        if case == "statistics":
            self.bn = nn.BatchNorm2d(4, track_running_stats=False)
        if case == "hook":
            self.conv.register_forward_hook(lambda *_: None)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if self.case == "sequence":
            return self.bn(self.fc(x[:, :, 0]))
        y = self.conv(x)
        match self.case:
            case "sum":
                return self.bn(y) + y
            case "function":
                return self.bn(y) + Double.apply(y)
            case "in_place":
                return self.bn(y.relu_())
            case "view":
                return self.bn(y) + y.flatten(1).sum()
            case "returned":
                return self.bn(y), y
            case "stored":
                self.seen = y
            case "stored_alias":
                self.seen = y.data
            case "stored_by_a_closure":
                self.seen = lambda: y
            case "alias":
                return self.bn(y) + y.data
            case "object":
                return SimpleNamespace(logits=self.bn(y), features=y)
            case "twice":
                return self.bn(self.conv(y))
            case "norm_twice":
                return self.bn(self.bn(y))
            case "shared" | "shared_memory":
                return self.bn(y) + self.other(x)
            case "weight":
                return self.bn(y) + F.conv2d(x, self.conv.weight)
            case "bias":
                return self.bn(y) + self.conv.bias.sum()
            case "tied_decoder":
                return self.bn(y) + F.conv_transpose2d(x, self.conv.weight.mT.data)
            case "weight_returned":
                return self.bn(y), self.conv.weight
            case "forward":
                return self.bn(y) + self.conv.forward(x)
            case "gamma":
                return self.bn(y) * self.bn.weight.sum()
            case "statistics_read":
                return (self.bn(y) - self.bn.running_mean.sum()) / self.bn.running_var.sum()
        return self.bn(y)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x * 2


KEPT = {
    "sum": "the output of conv is also read by the model itself",
    "function": "the output of conv is also read by the model itself",
    "in_place": "the output of conv is also read by the model itself",
    "view": "the output of conv is also read by the model itself",
    "returned": "the output of conv is also read by the model's caller",
    "stored": "the output of conv is also read by an attribute or object that keeps it",
    "stored_alias": (
        "the output of conv is also read by an attribute or object that keeps it, the model itself"
    ),
    "stored_by_a_closure": "the output of conv is also read by an attribute or object that keeps it",
    "alias": "the output of conv is also read by the model itself",
    "object": "the output of conv is also read by an attribute or object that keeps it",
    "twice": "conv runs more than once",
    "norm_twice": "it ran 2 times on the example",
    "shared": "conv shares its weight or bias with other",
    "shared_memory": "conv shares its weight or bias with other",
    "buffer": "conv shares its weight or bias with the model itself",
    "weight": "the weight or bias of conv is also read by the model itself",
    "bias": "the weight or bias of conv is also read by the model itself",
    "tied_decoder": "the weight or bias of conv is also read by the model itself",
    "weight_returned": "the weight or bias of conv is also read by the model's caller",
    "forward": "the weight or bias of conv is also read by the model itself",
    "gamma": "its own weight, bias or statistics are also read by the model itself",
    "statistics_read": "its own weight, bias or statistics are also read by the model itself",
    "sequence": "its channels are not those of fc",
    "statistics": "it keeps no running statistics",
    "conv_forward": "it does not read the output of a plain convolution or linear layer",
    "bn_forward": "it is a BatchNorm2d whose forward may not be torch's",
    "hook": "it or conv has hooks, which may change what passes",
}


@pytest.mark.parametrize("case", KEPT)
def test_what_does_not_fold_stays_and_says_why(case: str) -> None:
    model = randomised(Pair(case))
    before = copy.deepcopy(model.state_dict())
    done = fold_batchnorm(model, torch.randn(3, 4, 6, 6, dtype=torch.float64))
    assert done == Folding({}, {"bn": KEPT[case]})
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_the_shape_of_a_tensor_is_no_reading_of_it() -> None:
    class Sized(Pair):
        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            assert y.size(1) == y.shape[1]
            return self.bn(y)

    assert check(randomised(Sized("")), torch.randn(3, 4, 6, 6, dtype=torch.float64)).folded == {"bn": "conv"}


def test_a_reference_cycle_that_nobody_can_reach_keeps_no_output() -> None:
    class Cycle(Pair):
        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            cycle = [y]
            cycle.append(cycle)
            return self.bn(y)

    gc.disable()
    try:
        done = check(randomised(Cycle("")), torch.randn(3, 4, 6, 6, dtype=torch.float64))
    finally:
        gc.enable()
    assert done.folded == {"bn": "conv"}


def test_a_batchnorm_that_is_also_held_elsewhere_is_gone_there_too() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
            self.layers = [self.conv, self.bn]

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    assert check(randomised(Listed()), torch.randn(IMAGES, dtype=torch.float64)).folded == {"bn": "conv"}


def test_a_standalone_batchnorm_stays() -> None:
    model = randomised(nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.ReLU(), nn.BatchNorm2d(4)))
    done = check(model, torch.randn(3, 4, 6, 6, dtype=torch.float64))
    why = "it does not read the output of a plain convolution or linear layer"
    assert done == Folding({}, {"0": why, "3": why})


def test_whole_networks() -> None:
    x = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    assert check(randomised(ResNet8()), x).kept == {}
    done = check(randomised(torchvision.models.shufflenet_v2_x0_5()), x)
    assert (len(done.folded), done.kept) == (56, {})


def test_mode_and_buffers_stay_and_the_result_can_be_quantized() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3)).train()
    fold_batchnorm(model, torch.rand(1, 3, 8, 8))
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    quantize(model, Quantization(), torch.rand(2, 3, 8, 8))
    with pytest.raises(ValueError, match="the model is quantized: fold the float model, then quantize it"):
        fold_batchnorm(model, torch.rand(2, 3, 8, 8))


def test_refused() -> None:
    with pytest.raises(ValueError, match="lazy modules have no weights yet: 0"):
        fold_batchnorm(nn.Sequential(nn.LazyLinear(3)), torch.rand(2, 4))
    with pytest.raises(ValueError, match=r"does not run through 0 \(Linear\)"):
        fold_batchnorm(nn.Sequential(nn.Linear(3, 3)), torch.rand(2, 4))

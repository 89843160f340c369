"""Networks that call functions count like networks that are made of modules."""

import contextlib
import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from onnxruntime import InferenceSession
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from qat.export import IntegerModel, export_onnx, write_c
from qat.layers import QuantActivation, QuantConv2d, Quantization, quantize, summary
from qat.layers.functional import Functional
from qat.memory import checkpoint_blocks, packed_activations

Net = type[nn.Module]


class LeNetOfModules(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 5, padding=2), nn.Conv2d(4, 6, 5)
        self.fc1, self.fc2 = nn.Linear(24, 12), nn.Linear(12, 5)
        self.relu1, self.relu2, self.relu3 = nn.ReLU(), nn.ReLU(), nn.ReLU()
        self.pool1, self.pool2, self.flatten = nn.MaxPool2d(2), nn.MaxPool2d(2, 2), nn.Flatten()

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(self.relu1(self.conv1(x)))
        x = self.flatten(self.pool2(self.relu2(self.conv2(x))))
        return self.fc2(self.relu3(self.fc1(x)))


class LeNetOfFunctions(LeNetOfModules):
    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = torch.max_pool2d(torch.relu_(self.conv2(x)), kernel_size=(2, 2), stride=2)
        x = self.fc1(x.view(x.size(0), -1))
        return self.fc2(x.relu())


class ResidualOfModules(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu1(self.bn1(self.conv1(x)))
        return self.relu2(self.bn2(self.conv2(y)) + x)


class ResidualOfFunctions(ResidualOfModules):
    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x
        return F.relu(y)


class ResNetOfModules(nn.Module):
    block: Net = ResidualOfModules

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        self.blocks = nn.Sequential(self.block(4), self.block(4), self.block(4))
        self.pool, self.flatten, self.fc = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.relu(self.bn(self.conv(x))))
        return self.fc(self.flatten(self.pool(x)))


class ResNetOfFunctions(ResNetOfModules):
    block = ResidualOfFunctions

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(input=self.bn(self.conv(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class SeparableOfModules(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.point = nn.Conv2d(channels, channels, 1)
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.relu1, self.relu2 = nn.ReLU6(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu1(self.bn1(self.depth(x)))
        return x + self.relu2(self.bn2(self.point(y)))


class SeparableOfFunctions(SeparableOfModules):
    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self.bn1(self.depth(x)))
        y = F.relu(self.bn2(self.point(y)))
        return torch.add(x, y)


class DepthwiseOfModules(ResNetOfModules):
    block = SeparableOfModules


class DepthwiseOfFunctions(ResNetOfFunctions):
    block = SeparableOfFunctions

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu_(self.bn(self.conv(x))))
        return self.fc(F.dropout(x.mean((2, 3)), 0.0, self.training))


FORMS = {
    "lenet": (LeNetOfModules, LeNetOfFunctions),
    "resnet": (ResNetOfModules, ResNetOfFunctions),
    "depthwise": (DepthwiseOfModules, DepthwiseOfFunctions),
}
CONFIGS = {
    "W4A4": Quantization(),
    "learned": Quantization(weight_scale="learned", activation_scale="learned"),
    "deployable W4A8": Quantization(activation_bits=8, deployable=True),
}
IMAGES = torch.rand(6, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def both(forms: tuple[Net, Net], config: Quantization) -> list[nn.Module]:
    """The quantized network of modules and that of functions, with the same weights."""
    models = []
    for form in forms:
        torch.manual_seed(0)
        models.append(quantize(form(), config, IMAGES))
    return models


def onnx_output(path: Path) -> Any:
    session = InferenceSession(path)
    return session.run(None, {session.get_inputs()[0].name: IMAGES.numpy()})[0]


def train(model: nn.Module, packed: bool = False) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        if packed:
            with packed_activations():
                loss = model(IMAGES * (1 + step)).square().mean()
        else:
            loss = model(IMAGES * (1 + step)).square().mean()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("forms", FORMS.values(), ids=FORMS)
def test_they_train_and_compute_the_same(forms: tuple[Net, Net], config: Quantization) -> None:
    of_modules, of_functions = both(forms, config)
    for model in (of_modules, of_functions):
        train(model)
    weights = dict(of_modules.named_parameters())
    for name, p in of_functions.named_parameters():
        if ".functional." not in f".{name}":
            assert torch.equal(p, weights[name]), name
    of_modules.eval(), of_functions.eval()
    assert torch.equal(of_modules(IMAGES), of_functions(IMAGES))
    assert summary(of_modules, IMAGES).rows == summary(of_functions, IMAGES).rows
    counts = [
        sum(isinstance(m, QuantActivation) for m in model.modules()) for model in (of_modules, of_functions)
    ]
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("forms", FORMS.values(), ids=FORMS)
def test_their_c_files_are_equal(forms: tuple[Net, Net], tmp_path: Path) -> None:
    models = both(forms, CONFIGS["deployable W4A8"])
    for model in models:
        train(model)
    programs = [IntegerModel(model, (1, 16, 16)) for model in models]
    sources = [write_c(program, tmp_path / f"{n}.c") for n, program in enumerate(programs)]
    assert (sources[0].flash, sources[0].ram) == (sources[1].flash, sources[1].ram)
    assert sources[0].text == sources[1].text


@pytest.mark.parametrize(
    "name", ["lenet", *(pytest.param(n, marks=pytest.mark.slow) for n in FORMS if n != "lenet")]
)
def test_their_onnx_files_compute_the_same(name: str, tmp_path: Path) -> None:
    models = both(FORMS[name], CONFIGS["deployable W4A8"])
    outputs = []
    for n, model in enumerate(models):
        train(model)
        export_onnx(model, IMAGES[:2], tmp_path / f"{n}.onnx")
        outputs.append(torch.tensor(onnx_output(tmp_path / f"{n}.onnx")))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("forms", FORMS.values(), ids=FORMS)
def test_packed_and_checkpointed_functions_train_the_same(forms: tuple[Net, Net]) -> None:
    plain, checkpointed = both((forms[1], forms[1]), CONFIGS["W4A4"])
    checkpoint_blocks(checkpointed, ["blocks.*"] if hasattr(plain, "blocks") else ["conv*"])
    train(plain)
    train(checkpointed, packed=True)
    for (key, x), y in zip(plain.state_dict().items(), checkpointed.state_dict().values(), strict=True):
        assert torch.equal(x, y), key


def test_copies_pickles_and_loaded_states(tmp_path: Path) -> None:
    (model, fresh) = both((ResNetOfFunctions, ResNetOfFunctions), CONFIGS["W4A4"])
    train(model)
    checkpoint_blocks(model, ["blocks.1"])
    fresh.load_state_dict(model.state_dict())
    torch.save(model, tmp_path / "model.pt")
    copies = [
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(tmp_path / "model.pt", weights_only=False),
        fresh,
    ]
    model.eval()
    for each in copies:
        assert isinstance(each.blocks[1], Functional)
        assert torch.equal(each.eval()(IMAGES), model(IMAGES))


class Sometimes(nn.Module):
    """Calls of its own and of its children, twice in one forward."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.relu = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.ReLU()
        self.inner = ResidualOfFunctions(2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(self.relu(self.conv1(x)))
        x = self.relu(torch.tanh(x))
        return self.conv2(F.leaky_relu(x, 0.25)).sigmoid()


def test_calls_of_children_do_not_count() -> None:
    model: Any = quantize(Sometimes(), Quantization(), IMAGES)
    assert list(model.functional) == ["leaky_relu_1"]
    assert model.functional["leaky_relu_1"].negative_slope == 0.25
    assert list(model.inner.functional) == ["relu_0"]
    seen: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, QuantActivation):
            module.register_forward_hook(lambda *_, name=name: seen.append(name))
    for mode in (True, False):
        seen.clear()
        model.train(mode)(IMAGES)
        assert seen == ["inner.functional.relu_0", "functional.leaky_relu_1"]


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x))


def test_a_module_that_runs_twice_gets_no_quantizer_for_its_calls() -> None:
    block = Twice()
    model = quantize(nn.Sequential(block, block, nn.Conv2d(2, 2, 1)), Quantization(), torch.rand(2, 2, 4, 4))
    assert not any(isinstance(module, Functional | QuantActivation) for module in model.modules())


def test_an_override_by_the_name_of_a_call() -> None:
    config = Quantization(layers={"functional.relu_1": {"activation_bits": 2}})
    model: Any = quantize(LeNetOfFunctions(), config, IMAGES)
    assert model.functional["relu_1"].quantizer.grid.bits == 2
    assert summary(model, IMAGES).rows[2].input_bits == 2


@pytest.mark.parametrize("fullgraph", [True, False])
def test_it_compiles(fullgraph: bool) -> None:
    """Functions in place (`torch.relu_`) do not go through modes in a graph: that forward runs eagerly."""
    form = ResNetOfFunctions if fullgraph else LeNetOfFunctions
    model = quantize(form(), CONFIGS["W4A4"], IMAGES)
    plain = copy.deepcopy(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=fullgraph)
    for each in (compiled, plain):
        for _ in range(2):
            each(IMAGES).square().mean().backward()
    for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad), name
    for (key, x), y in zip(model.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(x, y), key


def test_a_function_that_a_graph_hides_is_an_error_there() -> None:
    torch.compiler.reset()  # it remembers code that it did not compile
    model = quantize(LeNetOfFunctions(), CONFIGS["W4A4"], IMAGES)
    with pytest.raises(RuntimeError, match=r"LeNetOfFunctions calls torch\.relu_ or the like"):
        torch.compile(model, backend="aot_eager", fullgraph=True)(IMAGES)


class SumOfFloats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.next, self.fc = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x))
        return self.fc((x + self.next(x)).mean((2, 3)))


def test_what_stays_float_between_layers_is_named_with_its_cost(tmp_path: Path) -> None:
    model = quantize(SumOfFloats(), CONFIGS["W4A4"], IMAGES)
    model(IMAGES)
    found = summary(model.eval(), IMAGES)
    assert found.float_before == {"fc": 16}
    assert "float until the layer itself quantizes it, bytes of a sample: fc 16" in str(found)
    source = write_c(IntegerModel(model, (1, 16, 16)), tmp_path / "model.c")
    assert source.wide == {"the model itself": 4 * 4 * 14 * 14}
    assert source.ram > sum(source.wide.values())
    assert "RAM" in str(source)
    assert "for values that no quantizer rounds: the model itself 3,136" in str(source)


class Auxiliary(nn.Module):
    """In training it calls one activation more, before the others."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.aux, self.conv2 = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.Conv2d(2, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        extra = self.aux(F.relu(50 * x)).mean() if self.training else 0.0
        return self.conv2(F.relu(x)) + extra


class OfSequential(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(super().forward(x))


class OverChildren(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        for child in self.children():
            x = child(x).relu()
        return x


class Repeated(nn.Module):
    def __init__(self, reentrant: bool = False) -> None:
        super().__init__()
        self.conv1, self.conv2, self.reentrant = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), reentrant

    def body(self, x: Tensor) -> Tensor:
        return self.conv2(F.relu(self.conv1(x)))

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return checkpoint(self.body, x, use_reentrant=False)
        return checkpoint(self.body, x * 1.0, use_reentrant=self.reentrant)


ODD: dict[str, Any] = {
    "another call in training": Auxiliary,
    "a Sequential": lambda: nn.Sequential(OfSequential(nn.Conv2d(1, 2, 3)), nn.Conv2d(2, 2, 3)),
    "over its children": OverChildren,
    "checkpointed by torch": Repeated,
}


@pytest.mark.parametrize("name", ODD)
def test_each_layer_reads_a_grid_in_both_modes(name: str) -> None:
    torch.manual_seed(0)
    model = quantize(ODD[name](), Quantization(activation_bits=3), IMAGES)
    levels: dict[str, int] = {}
    for layer_name, layer in model.named_modules():
        if isinstance(layer, QuantConv2d):
            quantizer = layer.input_quantizer

            def look(module: Any, args: Any, quantizer: Any = quantizer, key: str = layer_name) -> None:
                with torch.no_grad():
                    levels[key] = len(quantizer.eval()(args[0]).unique())
                    quantizer.train(module.training)

            layer.register_forward_pre_hook(look)
    for training in (True, False):
        model.train(training)
        levels.clear()
        model(IMAGES).square().mean().backward()
        assert levels
        first, *rest = levels.values()
        assert first <= 256
        assert all(count <= 8 for count in rest), levels


def test_a_call_that_is_another_in_eval_mode_changes_no_scale() -> None:
    torch.manual_seed(0)
    model: Any = quantize(Auxiliary(), Quantization(8, 8), IMAGES)
    for _ in range(3):
        model(IMAGES)
    plain: Any = copy.deepcopy(model)
    for layer in (plain.conv1, plain.conv2):
        layer.weight_quantizer.enabled = layer.input_quantizer.enabled = False
    error = (model.eval()(IMAGES) - plain.eval()(IMAGES)).abs().max()
    assert error < 0.02 * plain(IMAGES).abs().max()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_of_torch_gives_the_gradients_of_the_plain_forward(reentrant: bool) -> None:
    torch.manual_seed(0)
    model: Any = quantize(Repeated(reentrant), Quantization(), IMAGES)
    x = IMAGES.clone().requires_grad_()
    model(x)
    model.eval()
    model(x).square().mean().backward()
    found = model.conv2.weight.grad.clone()
    model.conv2.weight.grad = None
    model.body(x).square().mean().backward()
    torch.testing.assert_close(found, model.conv2.weight.grad)  # the same operations, with x * 1.0


class Catches(nn.Module):
    """It catches the exception of a child."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.fails, self.conv2 = nn.Conv2d(1, 2, 3), Fails(), nn.Conv2d(2, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        with contextlib.suppress(RuntimeError):
            self.fails(x)
        return self.conv2(F.relu(x))


class Fails(nn.Module):
    broken = False

    def forward(self, x: Tensor) -> Tensor:
        if self.broken:
            raise RuntimeError("no")
        return x


def test_an_exception_that_the_forward_catches() -> None:
    model: Any = quantize(Catches(), Quantization(), IMAGES)
    model(IMAGES)
    seen: list[Tensor] = []
    model.conv2.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    model.fails.broken = True
    for _ in range(2):
        model.eval()(IMAGES)
    assert all(len(x.unique()) <= 16 for x in seen)
    assert len(seen) == 2


class Skips(nn.Module):
    """It does not call its block while the example runs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.block, self.conv2 = nn.Conv2d(1, 2, 3), Block(), nn.Conv2d(2, 2, 3)
        self.skips = True

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        return self.conv2(F.relu(x if self.skips else self.block(x)))


class Block(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) + F.relu(-x)


def test_calls_of_a_module_that_the_example_skipped_do_not_count() -> None:
    model: Any = quantize(Skips(), Quantization(), IMAGES)
    model(IMAGES)
    model.skips = False
    seen: list[Tensor] = []
    model.conv2.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    for mode in (True, False):
        model.train(mode)(IMAGES)
    assert [len(x.unique()) <= 16 for x in seen] == [True, True]

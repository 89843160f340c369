"""Packed activations: fewer bytes, the same run to the last bit."""

import copy
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from qat import Checkpointed, Quantization, checkpoint_blocks, packed_activations, quantize, saved_bytes
from qat.memory.packing import is_packing
from qat.models import ResNet8, SmallCNN
from qat.quantizers import IntGrid, ObservedScale, Quantizer

SHAPE = (1, 16, 16)
Context = Callable[[], AbstractContextManager[Any]]


def small(config: Quantization, checkpointed: bool = False, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    model = quantize(SmallCNN(SHAPE, 10, width=4, **options), config, torch.zeros(2, *SHAPE))
    return checkpoint_blocks(model, ["blocks.*"]) if checkpointed else model


def residual(config: Quantization, checkpointed: bool = False) -> nn.Module:
    torch.manual_seed(0)
    model = quantize(ResNet8(SHAPE), config, torch.zeros(2, *SHAPE))
    return checkpoint_blocks(model, ["stem", "blocks.*"]) if checkpointed else model


def batches(count: int) -> list[Tensor]:
    """Changing data: constant batches hide a second step of an observer."""
    torch.manual_seed(1)
    return [torch.rand(4, *SHAPE) * 3**step for step in range(count)]


def run(
    model: nn.Module, within: Context, around: Context = nullcontext, steps: int = 5
) -> dict[str, Tensor]:
    """Losses, gradients, the model's state and the generator's state after some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(2)
    result: dict[str, Tensor] = {}
    for step, x in enumerate(batches(steps)):
        with within(), around():
            loss = F.cross_entropy(model(x).float(), torch.arange(4))
        optimizer.zero_grad()
        loss.backward()
        result |= {
            f"gradient {step} {name}": p.grad for name, p in model.named_parameters() if p.grad is not None
        }
        optimizer.step()
        result[f"loss {step}"] = loss.detach()
    return result | model.state_dict() | {"generator": torch.get_rng_state()}


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different


CONFIGS = {
    "observed": Quantization(),
    "learned": Quantization(weight_scale="learned", activation_scale="learned"),
    "pact and dorefa": Quantization(weight_scale="dorefa", activation_scale="pact"),
    "power of two": Quantization(power_of_two=True),
    "asymmetric": Quantization(asymmetric=True, input_signed=True),
    "stochastic": Quantization(rounding="stochastic"),
    "ewgs": Quantization(rounding="ewgs"),
    "zero": Quantization(rounding="zero"),
    "one bit": Quantization(weight_bits=1, activation_bits=1),
    "two bits": Quantization(weight_bits=2, activation_bits=2),
    "midrise": Quantization(2, 2, weight_levels="midrise", weight_observer="mean"),
    "outside": Quantization(2, 2, weight_outside="fading", activation_outside="passed"),
    "three bits": Quantization(weight_bits=3, activation_bits=3),
    "sixteen bits": Quantization(weight_bits=16, activation_bits=16),
}


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("name", CONFIGS)
def test_five_steps_are_those_without_packing(name: str, checkpointed: bool) -> None:
    config = CONFIGS[name]
    for make in [lambda c: small(config, c, dropout=0.3), lambda c: residual(config, c)]:
        assert_same(run(make(checkpointed), packed_activations), run(make(False), nullcontext))


def autocast() -> AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("config", ["observed", "learned"])
def test_under_autocast(config: str, checkpointed: bool) -> None:
    packed = run(residual(CONFIGS[config], checkpointed), packed_activations, autocast, steps=3)
    assert_same(packed, run(residual(CONFIGS[config]), nullcontext, autocast, steps=3))


@pytest.mark.parametrize("config", ["observed", "learned"])
@pytest.mark.parametrize("how", [{"memory_format": torch.channels_last}, {"dtype": torch.float64}])
def test_other_layouts_and_types(config: str, how: dict[str, Any]) -> None:
    x = torch.rand(4, *SHAPE).to(**how)
    results = []
    for within in (nullcontext, packed_activations):
        model = residual(CONFIGS[config], within is packed_activations).to(**how)
        with within():
            y = model(x)
        y.square().sum().backward()
        results.append({name: p.grad for name, p in model.named_parameters()} | model.state_dict() | {"y": y})
    assert_same(*results)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
def test_gradients_accumulate_over_several_forwards(checkpointed: bool) -> None:
    results = []
    for within, c in [(nullcontext, False), (packed_activations, checkpointed)]:
        model = residual(CONFIGS["learned"], c)
        with within():
            losses = [model(x).square().sum() for x in batches(3)]  # the observers move before the backward
        sum(losses).backward()
        results.append({name: p.grad for name, p in model.named_parameters()} | model.state_dict())
    assert_same(*results)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
def test_the_backward_may_come_inside_and_twice(checkpointed: bool) -> None:
    results = []
    for within, c in [(nullcontext, False), (packed_activations, checkpointed)]:
        model = residual(CONFIGS["observed"], c)
        with within():
            loss = model(batches(1)[0]).square().sum()
            loss.backward(retain_graph=True)
            loss.backward()
        results.append({name: p.grad for name, p in model.named_parameters()} | model.state_dict())
    assert_same(*results)


def test_without_grad_and_forward_only_it_changes_nothing() -> None:
    model, twin = residual(CONFIGS["learned"], True), residual(CONFIGS["learned"])
    x = batches(1)[0]
    with packed_activations(), torch.no_grad():
        assert torch.equal(model(x), twin(x))
    with packed_activations():
        assert torch.equal(model(x), twin(x))  # no backward
    assert_same(model.state_dict(), twin.state_dict())
    with packed_activations():
        assert torch.equal(model.eval()(x), twin.eval()(x))


def quantizer(bits: int = 4) -> Quantizer:
    grid = IntGrid(bits, signed=False)
    return Quantizer(grid, ObservedScale(grid.high, "ema"))


def kept(model: nn.Module, x: Tensor) -> int:
    with packed_activations():
        return saved_bytes(model, x).total


@pytest.mark.parametrize(
    ("bits", "size"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (7, 8), (8, 8), (16, 16)], ids=str
)
def test_bits_an_element(bits: int, size: int) -> None:
    model = nn.Sequential(quantizer(bits), nn.Conv2d(8, 8, 1))
    # The codes, and a bit for the gradient's mask, both of 8 * 64 elements.
    assert kept(model, torch.rand(1, 8, 8, 8, requires_grad=True)) == 8 * 64 * size // 8 + 8 * 64 // 8


class Branches(nn.Module):
    """One quantizer's output read by two convolutions, one behind a view."""

    def __init__(self) -> None:
        super().__init__()
        self.quantizer, self.a, self.b = quantizer(), nn.Conv2d(8, 8, 1), nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.quantizer(x)
        return self.a(y).sum() + self.b(y.flatten(2)[:, 1:]).sum() + y.sum()


def test_a_tensor_with_several_consumers_is_packed_once() -> None:
    assert kept(Branches(), torch.rand(1, 8, 8, 8)) == 8 * 64 // 2


# What follows the quantizer, and how many elements are then kept: 512 behind a view, 128 in a new tensor.
AFTER: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "max_pool2d": (lambda y: F.max_pool2d(y, 2), 128),
    "adaptive_max_pool2d": (lambda y: F.adaptive_max_pool2d(y, 4), 128),
    "flatten": (lambda y: y.flatten(1)[:, :128], 512),
    "dropout in eval": (lambda y: F.dropout(y, training=False)[:, :2], 512),
    "zero padding": (lambda y: F.pad(y[..., :2, :2], (1, 1, 1, 1)), 128),
    "reflection": (lambda y: F.pad(y[..., :2, :2], (1, 1, 1, 1), mode="reflect"), 128),
    "a copy": (lambda y: y[..., :4, :4].contiguous(), 128),
    "channels_last": (lambda y: y[..., :4, :4].clone(memory_format=torch.channels_last), 128),
}


class After(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.quantizer, self.function = quantizer(), function
        self.weight = nn.Parameter(torch.rand(128))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.quantizer(x)).reshape(-1, 128) @ self.weight


@pytest.mark.parametrize("name", AFTER)
def test_what_keeps_the_grid_is_packed(name: str) -> None:
    function, elements = AFTER[name]
    model, x = After(function), torch.rand(1, 8, 8, 8)
    assert kept(model, x) == elements // 2
    results = []
    for within in (nullcontext, packed_activations):
        model.weight.grad = None
        with within():
            y = model(x)
        y.sum().backward()
        results.append(model.weight.grad)
    assert torch.equal(*results)


def test_values_scaled_or_padded_with_others_are_kept_as_they_are() -> None:
    x = torch.rand(1, 8, 8, 8)
    for function in [
        lambda y: F.dropout(y, 0.5)[..., :4, :4],
        lambda y: F.pad(y[..., :2, :2], (1, 1, 1, 1), value=0.3),
        lambda y: F.avg_pool2d(y, 2),
        lambda y: y.mul(0.5)[..., :4, :4],
        lambda y: y.bfloat16()[..., :4, :4].float(),
    ]:
        assert kept(After(function), x) >= 4 * 128
        torch.manual_seed(0)
        model = After(function)
        results = []
        for within in (nullcontext, packed_activations):
            model.weight.grad = None
            torch.manual_seed(0)
            with within():
                y = model(x)
            y.sum().backward()
            results.append(model.weight.grad)
        assert torch.equal(*results)


def test_zeros_are_not_on_the_grid_of_one_signed_bit() -> None:
    for pads in [nn.ZeroPad2d(1), nn.ReflectionPad2d(1)]:
        one_bit = Quantizer(IntGrid(1), ObservedScale(1, "ema"))
        model = nn.Sequential(one_bit, pads, nn.Conv2d(2, 2, 3))
        x = torch.randn(1, 2, 6, 6)
        results = []
        for within in (nullcontext, packed_activations):
            model.zero_grad()
            one_bit.scale.batches.zero_()
            with within():
                y = model(x)
            y.square().sum().backward()
            results.append(model[2].weight.grad.clone())
        assert torch.equal(*results)


def test_inference_mode_and_other_threads_are_left_alone() -> None:
    model, x = residual(CONFIGS["observed"]), batches(1)[0]
    errors: list[Exception] = []

    def infer() -> None:
        try:
            with torch.inference_mode():
                model(x)
        except Exception as error:
            errors.append(error)

    with packed_activations():
        infer()
        thread = threading.Thread(target=infer)
        thread.start()
        thread.join()
    assert errors == []


class Captures(nn.Module):
    """Reads a tensor that is not one of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.seen = nn.Linear(16, 16), [torch.zeros(())]

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.seen[0]


def test_a_checkpointed_block_that_reads_more_than_its_arguments() -> None:
    results = []
    for within in (nullcontext, packed_activations):
        torch.manual_seed(0)
        block, made = Checkpointed(Captures()), quantizer()
        x = torch.rand(4, 16, requires_grad=True)
        with within():
            block.seen[0] = made(x)
            y = block(made(x * 2)).sum()
        y.backward()
        results.append(block.linear.weight.grad)
    assert torch.equal(*results)


def noisy(v: Tensor) -> Tensor:
    return v + (torch.rand_like(v) - 0.5)


class Noisy(Quantizer):
    def forward(self, x: Tensor, relu: bool = False) -> Tensor:
        return super().forward(x, relu) + 0.01 * torch.rand_like(x)


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("user_defined", ["rounding", "subclass"])
def test_user_defined_outputs_are_not_packed(user_defined: str, checkpointed: bool) -> None:
    def make(checkpointed: bool) -> nn.Module:
        model = small(Quantization(rounding=noisy if user_defined == "rounding" else "ste"), checkpointed)
        for module in model.modules():
            if isinstance(module, Quantizer) and user_defined == "subclass":
                module.__class__ = Noisy
        return model

    assert_same(run(make(checkpointed), packed_activations, steps=3), run(make(False), nullcontext, steps=3))


def test_contexts_may_close_in_any_order() -> None:
    def steps() -> Iterator[None]:
        with packed_activations():
            yield
            yield

    first, second = steps(), steps()
    next(first)
    next(second)
    first.close()
    second.close()
    assert not is_packing()


def test_a_quantizer_called_by_keyword() -> None:
    with packed_activations():
        assert quantizer()(x=torch.rand(4, 4, requires_grad=True)).shape == (4, 4)


def test_a_value_changed_in_place_is_no_longer_on_the_grid() -> None:
    x = torch.rand(1, 8, 8, 8)
    model = After(lambda y: y.mul_(0.3)[..., :4, :4])
    with packed_activations():
        y = model(x)
    y.sum().backward()
    expected = (model.quantizer.eval()(x) * 0.3)[..., :4, :4].reshape(-1)
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, expected)


@pytest.mark.parametrize("changed", ["packed", "kept"])
def test_a_saved_tensor_changed_in_place_is_right_or_refused(changed: str) -> None:
    x, weight = torch.rand(1, 8, 8, 8), torch.rand(8, 8, 8, requires_grad=True)
    with packed_activations():
        y = quantizer()(x) if changed == "packed" else x.clone()
        before = y.clone()
        z = (y * weight).sum()
    y.zero_()
    if changed == "kept":
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.backward()
    else:
        z.backward()
        assert weight.grad is not None
        assert torch.equal(weight.grad, before[0])


def test_second_derivatives_are_those_without_packing() -> None:
    results = []
    for within in (nullcontext, packed_activations):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), quantizer(), nn.Conv2d(4, 2, 3))
        x = torch.rand(2, 1, 8, 8, requires_grad=True)
        with within():
            y = model(x).square().sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        g.square().sum().backward()
        results.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert_same(*results)


def test_within_other_hooks_it_hands_the_packed_tensors_on() -> None:
    seen: list[Tensor] = []
    x = torch.rand(1, 8, 8, 8)
    model = nn.Sequential(quantizer(), nn.Conv2d(8, 8, 1))
    with saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t), packed_activations():
        y = model(x)
    assert [t.dtype for t in seen if t.numel() == 8 * 64 // 2] == [torch.uint8]
    y.sum().backward()
    gradient = model[1].weight.grad
    model.zero_grad()
    with save_on_cpu(), packed_activations():
        y = model(x)
    y.sum().backward()
    assert torch.equal(gradient, model[1].weight.grad)


def test_hooks_inside_it_take_over_also_around_a_checkpointed_block() -> None:
    results = []
    for around in (nullcontext, save_on_cpu):
        model = residual(CONFIGS["observed"], checkpointed=True)
        results.append(run(model, packed_activations, around, steps=2))
    assert_same(*results)


def test_between_checkpointed_blocks_only_codes_are_kept() -> None:
    model = quantize(ResNet8(), Quantization(), torch.zeros(2, 3, 32, 32))
    checkpoint_blocks(model, ["stem", "blocks.*"])
    x = torch.rand(8, 3, 32, 32)
    with packed_activations():
        layers = saved_bytes(model, x).layers
    elements = 8 * 16 * 32 * 32
    assert layers["blocks.0"] == elements // 2
    assert layers["blocks.1"] == elements // 2
    assert layers["blocks.2"] == elements // 4


def test_packed_tensors_go_with_the_graph() -> None:
    model = residual(CONFIGS["observed"])
    alive: list[int] = []
    with packed_activations():
        for x in batches(4):
            loss = model(x).square().sum()
            loss.backward()
            del loss
            gc.collect()
            alive.append(sum(type(o) is Tensor and o.dtype == torch.uint8 for o in gc.get_objects()))
    assert alive[3] == alive[2] == alive[1]


def test_a_copy_of_the_model_trains_alike() -> None:
    model = residual(CONFIGS["learned"], checkpointed=True)
    twin = copy.deepcopy(model)
    assert_same(run(model, packed_activations, steps=2), run(twin, packed_activations, steps=2))

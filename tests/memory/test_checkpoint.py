"""Checkpointed equals plain, bit for bit: outputs, gradients, buffers, random numbers."""

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qat import (
    Checkpointed,
    Quantization,
    checkpoint_blocks,
    packed_activations,
    quantize,
    saved_bytes,
)
from qat.models import LeNet, ResNet8, SmallCNN


class Block(nn.Module):
    """Convolution, BatchNorm, ReLU, dropout; with `twice` all of it runs twice in a call."""

    def __init__(self, twice: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.act = nn.ReLU()
        self.dropout = nn.Dropout(0.3)
        self.twice = twice

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2 if self.twice else 1):
            x = self.dropout(self.act(self.bn(self.conv(x))))
        return x


def net(twice: bool = False) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), Block(twice), Block(), nn.Flatten(), nn.LazyLinear(3))


def quantized(build: Callable[[], nn.Module], shape: tuple[int, ...], **options: object) -> nn.Module:
    torch.manual_seed(0)
    model = build()
    model(torch.zeros(2, *shape))
    return quantize(model, Quantization(**options), torch.zeros(2, *shape))


def train(model: nn.Module, shape: tuple[int, ...], accumulate: int = 1) -> tuple[list[Tensor], list[Tensor]]:
    """Ten steps on data whose range changes; losses, and random numbers drawn after each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(1)
    losses, drawn = [], []
    for step in range(10):
        batches = [torch.rand(4, *shape) * 3 ** (step % 4) + i for i in range(accumulate)]
        # All forwards before any backward: by then the observers have moved on.
        loss = torch.stack([model(batch).square().mean() for batch in batches]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        drawn.append(torch.rand(1))
    return losses, drawn


def assert_same_run(
    plain: nn.Module, checkpointed: nn.Module, shape: tuple[int, ...], accumulate: int = 1
) -> None:
    results = [train(model, shape, accumulate) for model in (plain, checkpointed)]
    assert all(torch.equal(a, b) for a, b in zip(results[0][0], results[1][0], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))
    one, other = plain.state_dict(), checkpointed.state_dict()
    assert list(one) == list(other)
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert any("scale.batches" in key for key in one)
    for (name, p), (name2, q) in zip(plain.named_parameters(), checkpointed.named_parameters(), strict=True):
        assert name == name2
        assert p.grad is not None
        assert torch.equal(p.grad, q.grad), name


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("rounding", ["ste", "zero"])
def test_a_whole_run_equals_the_plain_one(twice: bool, accumulate: int, rounding: str) -> None:
    shape = (1, 8, 8)
    models = [quantized(lambda: net(twice), shape, rounding=rounding) for _ in range(2)]
    checkpoint_blocks(models[1], ["2", "3"])
    assert_same_run(*models, shape, accumulate)


@pytest.mark.parametrize("build", [LeNet, lambda: SmallCNN(dropout=0.3), ResNet8])
def test_the_models_of_the_package(build: Callable[[], nn.Module]) -> None:
    shape = (3, 32, 32) if build is ResNet8 else (1, 28, 28)
    models = [quantized(build, shape) for _ in range(2)]
    checkpoint_blocks(models[1], ["blocks.*"])
    assert_same_run(*models, shape)


def test_the_first_block_learns_though_its_input_has_no_grad() -> None:
    model = checkpoint_blocks(quantized(SmallCNN, (1, 28, 28)), ["blocks.*"])
    model(torch.rand(2, 1, 28, 28)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("momentum", [0.1, None])
def test_state_moves_once_a_forward_in_every_kind_of_pass(momentum: float | None) -> None:
    block = Block()
    block.bn.momentum = momentum
    model = quantize(nn.Sequential(nn.Conv2d(1, 4, 3), block), Quantization(), torch.rand(2, 1, 8, 8))
    twin = copy.deepcopy(model)
    checkpoint_blocks(model, ["1"])
    for backward in (True, False, True):
        x = torch.rand(2, 1, 8, 8)
        for m in (model, twin):
            torch.manual_seed(0)
            y = m(x).sum()
            if backward:
                y.backward()
    with torch.no_grad():
        model(x), twin(x)
    assert model[1].bn.num_batches_tracked.item() == 4
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), twin.buffers(), strict=True))


def test_eval_simply_calls_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    block = Checkpointed(nn.Linear(4, 4)).eval()
    monkeypatch.setattr("qat.memory.checkpoint.checkpoint", None)
    assert block(torch.rand(2, 4)).shape == (2, 4)


def test_it_saves_only_its_input() -> None:
    block = nn.Sequential(*(nn.Tanh() for _ in range(8)))
    stem = nn.Linear(16, 16)
    model = nn.Sequential(stem, block)
    x = torch.rand(4, 16)
    assert saved_bytes(model, x).total == 4 * 16 * 4 * 9
    checkpoint_blocks(model, ["1"])
    assert saved_bytes(model, x).total == 4 * 16 * 4 * 2


def test_a_second_backward_replays_from_the_same_state() -> None:
    model = checkpoint_blocks(quantized(net, (1, 8, 8)), ["2", "3"])
    model(torch.rand(2, 1, 8, 8) * 5)  # the first batch sets an average, later ones move it
    loss = model(torch.rand(2, 1, 8, 8)).sum()
    parameters = list(model.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    model(torch.rand(2, 1, 8, 8) * 9)  # the observers move on
    second = torch.autograd.grad(loss, parameters)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_no_trace_in_names_keys_or_attributes() -> None:
    plain = quantized(net, (1, 8, 8))
    model = checkpoint_blocks(copy.deepcopy(plain), ["2", "3"])
    assert [name for name, _ in model.named_modules()] == [name for name, _ in plain.named_modules()]
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain.named_parameters()]
    plain.load_state_dict(model.state_dict(), strict=True)
    model.load_state_dict(plain.state_dict(), strict=True)
    assert isinstance(model[2], Checkpointed)
    assert isinstance(model[2], Block)
    assert model[2].twice is False
    with pytest.raises(AttributeError, match="nothing"):
        _ = model[2].nothing


class Own(nn.Module):
    """A block that reads its own mode, freezes its BatchNorm, and has a part called `block`."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.frozen = nn.BatchNorm2d(4)
        self.gain = 1.0

    def train(self, mode: bool = True) -> "Own":
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        y = self.frozen(self.block(x))
        return self.gain * nn.functional.dropout(y, 0.5, self.training)


def own_pair() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(Own(), nn.Flatten(), nn.Linear(4 * 6 * 6, 3))
    return tuple(quantize(copy.deepcopy(model).train(), Quantization(), torch.rand(2, 1, 8, 8)) for _ in "ab")


def test_a_block_that_reads_its_own_mode() -> None:
    plain, model = own_pair()
    checkpoint_blocks(model, ["0"])
    for m in (plain, model):
        saved_bytes(m.eval(), torch.rand(2, 1, 8, 8))  # restores modes flag by flag, as Lightning does
        for part in m.modules():
            part.training = not isinstance(part, nn.BatchNorm2d)
        m.train()
    assert not model[0].frozen.training
    assert_same_run(plain, model, (1, 8, 8))


def test_attributes_reach_the_block_and_names_reach_its_parts() -> None:
    _, model = own_pair()
    checkpoint_blocks(model, ["0"])
    x = torch.rand(2, 1, 8, 8)
    model[0].gain = 0.0
    assert model[0](x).abs().sum() == 0
    assert isinstance(model.get_submodule("0.block.0"), nn.Conv2d)
    sequential = Checkpointed(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert len(sequential) == 2
    assert isinstance(sequential[1], nn.ReLU)


def test_the_second_pass_runs_in_the_mode_of_the_first() -> None:
    gradients = []
    for patterns in ([], ["2", "3"]):
        model = checkpoint_blocks(quantized(net, (1, 8, 8)), patterns)
        torch.manual_seed(2)
        loss = model(torch.rand(2, 1, 8, 8)).sum()
        model.eval()
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
        assert not any(module.training for module in model.modules())
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


class Shared(nn.Module):
    """The same parts under two names, and one block in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.act = nn.ReLU()
        self.parts = nn.ModuleList([self.conv, self.bn])

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


def shared() -> nn.Module:
    block = Shared()
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), block, block, nn.Flatten(), nn.Linear(144, 3))


def test_parts_and_blocks_with_two_names() -> None:
    models = [quantized(shared, (1, 8, 8)) for _ in range(2)]
    buffers = [id(buffer) for buffer in models[1].buffers()]
    before = copy.deepcopy(models[1].state_dict())
    saved_bytes(models[1], torch.rand(2, 1, 8, 8))
    assert all(torch.equal(before[key], value) for key, value in models[1].state_dict().items())
    checkpoint_blocks(models[1], ["2"])
    assert models[1][2] is models[1][3]
    assert_same_run(*models, (1, 8, 8), accumulate=2)
    assert [id(buffer) for buffer in models[1].buffers()] == buffers


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_whole(copied: Callable[[nn.Module], nn.Module]) -> None:
    model = checkpoint_blocks(quantized(net, (1, 8, 8)), ["2"])
    model(torch.rand(2, 1, 8, 8)).sum().backward()
    twin = copied(model)
    model.zero_grad()
    twin.zero_grad()
    assert_same_run(model, twin, (1, 8, 8))
    assert isinstance(twin[2], Checkpointed)
    assert type(twin[2]) is type(model[2])
    assert twin[2].conv is not model[2].conv


def test_moving_to_another_dtype() -> None:
    model = checkpoint_blocks(quantized(net, (1, 8, 8)), ["2"]).double()
    assert model[2].conv.weight.dtype == torch.float64
    model(torch.rand(2, 1, 8, 8, dtype=torch.float64)).sum().backward()


def test_a_block_that_changes_its_input_in_place_is_refused() -> None:
    model = nn.Sequential(
        nn.Linear(4, 4), Checkpointed(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4)))
    )
    with pytest.raises(RuntimeError, match="CheckpointedSequential changes its input in place"):
        model(torch.rand(2, 4))


def test_the_form_for_the_compiler_puts_the_buffers_back_where_the_block_raises() -> None:
    block = Checkpointed(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(3, 3)))
    buffers = dict(block.named_buffers())
    with pytest.raises(RuntimeError, match="shapes"):
        block._compiled(torch.rand(2, 4))
    assert all(buffer is buffers[name] for name, buffer in block.named_buffers())


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(
        self, xs: list[Tensor], *, debug: bool, more: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return self.fc(xs[0] * more["y"]).tanh() * (2 if debug else 1), {"x": xs[0]}


@pytest.mark.parametrize("within", [nullcontext, packed_activations])
def test_weights_that_changed_before_the_backward_are_refused(within: Any) -> None:
    block = Checkpointed(nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    optimizer = torch.optim.SGD(block.parameters(), lr=0.5)
    with within():
        first, second = block(torch.rand(2, 2)).sum(), block(torch.rand(2, 2)).sum()
    first.backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"runs again in the backward, but its 0\.weight changed since"):
        second.backward()


class Lazy(nn.Module):
    """Fills a buffer in its first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("mean", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.mean is None:
            self.mean = x.detach().mean()
            return self.linear(2 * x)
        return self.linear(x - self.mean)


def test_a_buffer_that_the_first_pass_fills_is_empty_for_the_second() -> None:
    results = []
    for wrap in (lambda block: block, Checkpointed):
        torch.manual_seed(0)
        block = wrap(Lazy())
        for _ in range(2):
            block(torch.rand(2, 2)).square().sum().backward()
        results.append([block.linear.weight.grad, block.mean])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


class Returns(nn.Module):
    def __init__(self, extra: Any) -> None:
        super().__init__()
        self.linear, self.extra = nn.Linear(2, 2), extra

    def forward(self, x: Tensor) -> Any:
        return self.linear(x), self.extra


@pytest.mark.parametrize("extra", [3.0, "text", {"a": 1}])
def test_a_block_that_returns_anything_but_tensors_is_refused(extra: Any) -> None:
    with pytest.raises(ValueError, match=r"Returns returns a (float|str|int); a check"):
        Checkpointed(Returns(extra))(torch.rand(2, 2))
    output, nothing = Checkpointed(Returns(None))(torch.rand(2, 2))
    assert output.shape == (2, 2)
    assert nothing is None


@pytest.mark.parametrize("within", [nullcontext, packed_activations])
def test_second_derivatives_are_those_of_the_plain_block(within: Any) -> None:
    x = torch.rand(2, 3, requires_grad=True)
    results = []
    for wrap in (lambda block: block, Checkpointed):
        torch.manual_seed(0)
        block = wrap(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
        with within():
            y = block(x).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        results.append(torch.autograd.grad(g.square().sum(), block[0].weight)[0])
    assert torch.equal(*results)


def test_tensors_in_lists_dicts_and_keywords() -> None:
    results = []
    for wrap in (lambda block: block, Checkpointed):
        torch.manual_seed(0)
        block = wrap(Nested())
        x, y = (torch.rand(2, 4, requires_grad=True) for _ in range(2))
        out, rest = block([x], debug=True, more={"y": y})
        (out.sum() + rest["x"].sum()).backward()
        results.append([out, x.grad, y.grad, block.fc.weight.grad])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_tensors_in_lists_are_kept_like_others() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Checkpointed(Nested())

        def forward(self, x: Tensor) -> Tensor:
            y = x.exp()
            return self.inner([y], debug=False, more={"y": y})[0]

    # exp's output, which is the entry of the block.
    assert saved_bytes(Outer(), torch.rand(2, 4, requires_grad=True)).total == 2 * 4 * 4

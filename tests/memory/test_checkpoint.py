"""Checkpointed equals plain, bit for bit: outputs, gradients, buffers, random numbers."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from qat import Checkpointed, Quantization, checkpoint_blocks, quantize, saved_bytes
from qat.models import LeNet, ResNet8, SmallCNN


class Block(nn.Module):
    """Convolution, BatchNorm, ReLU, dropout; all of it `twice` a call where told so."""

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
    return quantize(model, Quantization(**options), torch.zeros(2, *shape))  # type: ignore[arg-type]


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


def test_eval_just_calls_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    block = Checkpointed(nn.Linear(4, 4)).eval()
    monkeypatch.setattr("qat.memory.checkpoint.checkpoint", None)
    assert block(torch.rand(2, 4)).shape == (2, 4)


def test_it_keeps_its_input_alone() -> None:
    block = nn.Sequential(*(nn.Tanh() for _ in range(8)))
    stem = nn.Linear(16, 16)
    model = nn.Sequential(stem, block)
    x = torch.rand(4, 16)
    assert saved_bytes(model, x).total == 4 * 16 * 4 * 9
    checkpoint_blocks(model, ["1"])
    assert saved_bytes(model, x).total == 4 * 16 * 4 * 2


def test_a_second_backward_replays_from_the_same_state() -> None:
    model = checkpoint_blocks(quantized(net, (1, 8, 8)), ["2", "3"])
    loss = model(torch.rand(2, 1, 8, 8)).sum()
    parameters = list(model.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    model(torch.rand(2, 1, 8, 8) * 9)  # the observers move on
    second = torch.autograd.grad(loss, parameters)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_no_trace_in_names_keys_or_modes() -> None:
    plain = quantized(net, (1, 8, 8))
    model = checkpoint_blocks(copy.deepcopy(plain), ["2", "3"])
    assert [name for name, _ in model.named_modules()] == [name for name, _ in plain.named_modules()]
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain.named_parameters()]
    plain.load_state_dict(model.state_dict(), strict=True)
    model.load_state_dict(plain.state_dict(), strict=True)
    model.eval()
    assert not model[2].block.training
    model.train()
    assert model[2].block.training
    assert model[2].twice is False  # attributes of the block are the wrapper's
    with pytest.raises(AttributeError, match="nothing"):
        _ = model[2].nothing


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_whole(copied: Callable[[nn.Module], nn.Module]) -> None:
    model = checkpoint_blocks(quantized(net, (1, 8, 8)), ["2"])
    model(torch.rand(2, 1, 8, 8)).sum().backward()
    twin = copied(model)
    model.zero_grad()
    twin.zero_grad()
    assert_same_run(model, twin, (1, 8, 8))
    assert twin[2].block.conv is twin[2].conv
    assert twin[2].conv is not model[2].conv


def test_moving_to_another_dtype_reaches_the_block() -> None:
    model = checkpoint_blocks(quantized(net, (1, 8, 8)), ["2"]).double()
    assert model[2].block.conv.weight.dtype == torch.float64
    model(torch.rand(2, 1, 8, 8, dtype=torch.float64)).sum().backward()


def test_keyword_arguments_and_tuples() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor, *, gain: float) -> tuple[Tensor, Tensor]:
            return self.fc(x) * gain, x

    y, x = Checkpointed(Two())(torch.rand(2, 4, requires_grad=True), gain=2.0)
    y.sum().backward()
    assert x.shape == (2, 4)


def test_a_pattern_that_matches_nothing() -> None:
    with pytest.raises(ValueError, match=r"checkpoint pattern 'block.\*' matches nothing; nearest: blocks"):
        checkpoint_blocks(SmallCNN(), ["block.*"])


@pytest.mark.parametrize("patterns", [["blocks.0", "blocks.0.conv"], ["blocks.0.conv", "blocks.0"]])
def test_a_block_inside_a_block(patterns: list[str]) -> None:
    with pytest.raises(ValueError, match=r"'blocks\.0\.conv' would be checkpointed inside block 'blocks\.0'"):
        checkpoint_blocks(SmallCNN(), patterns)
    model = checkpoint_blocks(SmallCNN(), patterns[:1])
    with pytest.raises(
        ValueError, match=r"block 'blocks\.0.*' would be checkpointed inside block 'blocks\.0"
    ):
        checkpoint_blocks(model, patterns[1:])


def test_twice_the_same_block() -> None:
    model = checkpoint_blocks(SmallCNN(), ["blocks.*"])
    with pytest.raises(ValueError, match=r"block 'blocks\.0' would be"):
        checkpoint_blocks(model, ["blocks.0"])

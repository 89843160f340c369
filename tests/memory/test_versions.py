"""What autograd refuses because it was changed in place is refused under the package's hooks too."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from qat import Checkpointed, packed_activations
from qat.memory import recompute
from qat.quantizers import IntGrid, ObservedScale, Quantizer

MODIFIED = "modified by an inplace operation"


class Changes(nn.Module):
    """`d` saves what `r` changes in place."""

    def __init__(self, quantized: bool = False) -> None:
        super().__init__()
        self.a, self.d = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)
        self.r = nn.ReLU(inplace=True)
        self.q = Quantizer(IntGrid(4), ObservedScale(7, "ema")) if quantized else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(self.q(x))
        y = self.d(x)
        return y + self.r(x)


def identity_hooks() -> AbstractContextManager[Any]:
    return saved_tensors_hooks(lambda x: x, lambda x: x)


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("outermost", [nullcontext, identity_hooks])
@pytest.mark.parametrize("within", [nullcontext, packed_activations])
@pytest.mark.parametrize(
    "wrap", [Checkpointed, lambda block: Checkpointed(nn.Sequential(Checkpointed(block)))]
)
def test_a_saved_tensor_changed_within_a_checkpointed_block(
    wrap: Any, within: Any, outermost: Any, quantized: bool
) -> None:
    block = wrap(Changes(quantized))
    with outermost(), within():
        y = block(torch.rand(2, 3, 8, 8))
    with pytest.raises(RuntimeError, match=rf"{MODIFIED}.*CheckpointedChanges saves it"):
        y.square().sum().backward()


@pytest.mark.parametrize("within", [nullcontext, packed_activations])
def test_plain_and_recompute_refuse_it_too(within: Any) -> None:
    for run in (lambda block, x: block(x), recompute):
        with within():
            y = run(Changes(), torch.rand(2, 3, 8, 8, requires_grad=True))
        with pytest.raises(RuntimeError, match=MODIFIED):
            y.sum().backward()


@pytest.mark.parametrize("inner", [nullcontext, packed_activations])
@pytest.mark.parametrize("outer", [nullcontext, packed_activations, identity_hooks])
def test_the_input_of_a_block_changed_afterwards(outer: Any, inner: Any) -> None:
    block = Checkpointed(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh()))
    x = torch.rand(2, 3, 8, 8)
    with outer(), inner():
        y = block(x)
    x.mul_(2)
    with pytest.raises(RuntimeError, match=rf"{MODIFIED}.*CheckpointedSequential needs it to run again"):
        y.sum().backward()


@pytest.mark.parametrize("around", [identity_hooks, save_on_cpu])
def test_packing_checks_within_hooks_that_keep_the_tensor_itself(around: Any) -> None:
    x = torch.rand(4, 4, requires_grad=True)
    with around(), packed_activations():
        y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match=MODIFIED):
        y.sum().backward()


def test_packing_takes_a_copy_that_hooks_around_it_keep() -> None:
    x = torch.rand(4, 4, requires_grad=True)
    with saved_tensors_hooks(torch.clone, lambda x: x), packed_activations():
        y = x.exp()
    expected = y.detach().clone()
    y.add_(1)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, expected)


class Reads(nn.Module):
    """Reads a tensor that is no argument and no buffer."""

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.conv, self.hidden = nn.Conv2d(3, 4, 3), [factor]

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) * self.hidden[0]


def test_a_tensor_that_the_block_reads_and_that_changed_afterwards() -> None:
    factor = torch.ones(4, 1, 1)
    y = Checkpointed(Reads(factor))(torch.rand(2, 3, 8, 8))
    factor.mul_(2)
    with pytest.raises(RuntimeError, match=rf"{MODIFIED}.*CheckpointedReads runs again .* make it a buffer"):
        y.sum().backward()


class Harmless(nn.Module):
    """In-place operations that autograd allows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.act, self.skip = nn.ReLU(inplace=True), nn.Conv2d(3, 4, 1)
        self.last = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.conv(x))
        y += self.skip(x)
        y = self.act(y)
        z = self.last(y)
        z.add_(1).clamp_(-1, 1)
        return z


@pytest.mark.parametrize("within", [nullcontext, packed_activations])
def test_harmless_changes_stay_bit_identical(within: Any) -> None:
    results = []
    for wrap in (lambda block: block, Checkpointed):
        torch.manual_seed(0)
        block, x = wrap(Harmless()), torch.rand(2, 3, 8, 8, requires_grad=True)
        with within():
            y = block(x)
            y += 1  # of the output, which the block does not need
        loss = y.square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        results.append([y, x.grad, *(p.grad for p in block.parameters()), *block.buffers()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_sparse_input_and_a_buffer_that_the_block_replaces() -> None:
    class Replaces(nn.Module):
        last: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.register_buffer("last", torch.ones(4, 4).add_(1))  # a version that the copy does not have

        def forward(self, x: Tensor) -> Tensor:
            y = torch.sparse.mm(x, self.fc.weight) * self.last
            self.last = self.last + 1
            return y

    x, gradients = torch.eye(4).to_sparse(), []
    for wrap in (lambda block: block, Checkpointed):
        torch.manual_seed(0)
        block = wrap(Replaces())
        block(x).sum().backward()
        gradients.append(block.fc.weight.grad)
    assert torch.equal(*gradients)

"""The hand-written Function agrees with `Checkpointed` and with the plain block, bit for bit."""

import copy

import pytest
import torch
from torch import Tensor, nn

from qat import Checkpointed, Quantization, quantize
from qat.memory import recompute, saved_bytes


class Recomputed(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return recompute(self.block, x)


def block() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.4), nn.Conv2d(4, 2, 3)
    )
    return quantize(layers, Quantization(), torch.rand(2, 3, 8, 8))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("input_grad", [False, True])
def test_it_agrees_with_checkpointed_and_plain(autocast: bool, input_grad: bool) -> None:
    plain = block()
    runs = []
    for wrap in (lambda b: b, Checkpointed, Recomputed):
        model = wrap(copy.deepcopy(plain))
        torch.manual_seed(1)
        results: list[Tensor] = []
        for step in range(4):
            x = (torch.rand(4, 3, 8, 8) * 3**step).requires_grad_(input_grad)
            with torch.autocast("cpu", torch.bfloat16, autocast):
                y = model(x)
            y.float().square().sum().backward()
            results += [y.detach(), torch.rand(1)]
            results += [x.grad] if x.grad is not None else []
        runs.append(results + [p.grad for p in model.parameters()] + list(model.buffers()))
    assert len(runs[0]) > 20
    for other in runs[1:]:
        assert len(other) == len(runs[0])
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


def test_it_saves_only_its_input_and_runs_twice() -> None:
    runs: list[int] = []
    tanhs = nn.Sequential(*(nn.Tanh() for _ in range(8)))
    tanhs.register_forward_hook(lambda *_: runs.append(1))
    x = torch.randn(512, 512, requires_grad=True)
    assert saved_bytes(tanhs, x).total == 8 * 2**20
    model = Recomputed(tanhs)
    # The input, and the random state (5,056 bytes), which a Function must save as well.
    assert saved_bytes(model, x).total == 2**20 + torch.get_rng_state().numel()
    runs.clear()
    (ours,) = torch.autograd.grad(model(x).sum(), x)
    assert len(runs) == 2
    (plain,) = torch.autograd.grad(tanhs(x).sum(), x)
    assert torch.equal(ours, plain)


def test_a_second_derivative_is_refused_in_a_sum_too() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    (first,) = torch.autograd.grad((recompute(nn.Tanh(), x) ** 2 + x**3).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="Recompute has no second derivative"):
        torch.autograd.grad(first.sum(), x)
    layer = nn.Linear(1, 1)
    (first,) = torch.autograd.grad(recompute(layer, x).sum(), layer.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="Recompute has no second derivative"):
        (first + layer.weight**2).sum().backward()


def test_frozen_and_unused_parameters() -> None:
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    layer.unused = nn.Parameter(torch.zeros(1))
    recompute(layer, torch.rand(3, 2)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.bias.grad is None
    assert layer.unused.grad is None


def test_a_backward_can_be_repeated() -> None:
    model = Recomputed(block())
    loss = model(torch.rand(2, 3, 8, 8)).sum()
    parameters = list(model.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    model(torch.rand(2, 3, 8, 8) * 9)
    assert all(torch.equal(a, b) for a, b in zip(first, torch.autograd.grad(loss, parameters), strict=True))


def test_an_input_changed_in_place_raises() -> None:
    x = torch.ones(2, requires_grad=True) * 1
    y = recompute(nn.Tanh(), x)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()

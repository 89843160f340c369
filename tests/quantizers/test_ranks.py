"""Learned scales on several ranks: the gradient is that of the global batch on one."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from qat.quantizers import Quantizer, activation_quantizer, weight_quantizer

BATCH = torch.linspace(0, 3, 96).reshape(8, 3, 2, 2)
ACTIVATIONS: dict[str, dict[str, Any]] = {
    "learned": {"scale": "learned"},
    "power of two": {"scale": "learned", "power_of_two": True},
    "pact": {"scale": "pact"},
}


class Network(nn.Module):
    """Each learned scale of an activation, and one of a weight with and without channels."""

    def __init__(self) -> None:
        super().__init__()
        self.activations = nn.ModuleDict(
            {
                name: activation_quantizer(BATCH / 3, 4, signed=False, **kind)
                for name, kind in ACTIVATIONS.items()
            }
        )
        self.weight = nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))
        self.weights = nn.ModuleList(
            weight_quantizer(self.weight.detach(), 4, axis=axis, scale="learned") for axis in (None, 0)
        )
        for part in self.modules():
            if isinstance(part, Quantizer):
                getattr(part.scale, "inner", part.scale).batches.fill_(1)  # keep the scale: no batch sets it

    def forward(self, x: Tensor) -> Tensor:
        y = sum(quantizer(x).mean((2, 3)) for quantizer in self.activations.values())
        for quantizer in self.weights:
            y = y @ quantizer(self.weight).T @ self.weight
        return y


def gradients(model: nn.Module, batch: Tensor) -> dict[str, Tensor]:
    model(batch).square().mean().backward()
    inner = getattr(model, "module", model)
    return {name: p.grad for name, p in inner.named_parameters() if p.grad is not None}


def _run(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = distributed.FileStore(f"{folder}/store", world)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    found = gradients(DistributedDataParallel(Network()), BATCH.chunk(world)[rank])
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.barrier()
    os._exit(0)  # gloo's threads sometimes abort a process at its exit; the files hold all that is tested


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_ranks_give_the_gradient_of_the_global_batch(world: int, tmp_path: Path) -> None:
    multiprocessing.spawn(_run, (world, str(tmp_path)), nprocs=world)
    for rank in range(world):
        check(torch.load(tmp_path / f"{rank}.pt", weights_only=True))


@pytest.mark.parametrize("world", [1, 2, 4])
def test_in_one_process(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of what each rank would compute, as DDP takes it."""
    model = Network().eval()
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: world)
    for part in BATCH.chunk(world):
        found = gradients(model, part)  # they add up
    monkeypatch.undo()
    check({name: gradient / world for name, gradient in found.items()})


def check(found: dict[str, Tensor]) -> None:
    expected = gradients(Network(), BATCH)
    assert len(expected) == 6
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], msg=lambda text, n=name: f"{n}: {text}")

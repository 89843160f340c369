"""Buffers and modes are kept as they are."""

import pytest
import torch
from torch import Tensor, nn

from qat.module_state import call_on, copy_buffers, hook_forwards, preserve_modes


def test_each_part_gets_its_own_mode_back() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2).eval(), nn.Dropout())

    def fail_half_way() -> None:
        with preserve_modes(model):
            model[0].train()
            model[1].eval()
            raise KeyError

    with pytest.raises(KeyError):
        fail_half_way()
    assert [part.training for part in model.modules()] == [True, False, True]


def test_a_call_on_copies_moves_the_copies_alone() -> None:
    norm = nn.BatchNorm1d(2)
    model = nn.Sequential(norm, norm)  # one module under two names
    copies = copy_buffers(model)
    call_on(model, copies, [torch.rand(4, 2)])
    assert int(norm.num_batches_tracked) == 0
    assert int(copies["0.num_batches_tracked"]) == 2


def test_hooks_around_forwards_are_named_replace_outputs_and_go() -> None:
    model = nn.Sequential(nn.Identity(), nn.Identity())
    calls: list[str] = []

    def after(name: str, part: nn.Module, inputs: list[Tensor], output: Tensor) -> Tensor | None:
        calls.append(f"after {name}")
        return output + 1 if name == "1" else None

    with hook_forwards(model, lambda name, *_: calls.append(f"before {name}"), after):
        assert model(torch.zeros(())) == 1
    assert calls == ["before ", "before 0", "after 0", "before 1", "after 1", "after "]
    assert model(torch.zeros(())) == 0
    assert len(calls) == 6

"""Buffers and modes are kept as they are."""

import pytest
import torch
from torch import nn

from qat.module_state import call_on, copy_buffers, preserve_modes


def test_each_part_gets_its_own_mode_back() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2).eval(), nn.Dropout())
    with pytest.raises(KeyError), preserve_modes(model):
        model[0].train()
        model[1].eval()
        raise KeyError
    assert [part.training for part in model.modules()] == [True, False, True]


def test_a_call_on_copies_moves_the_copies_alone() -> None:
    norm = nn.BatchNorm1d(2)
    model = nn.Sequential(norm, norm)  # one module under two names
    copies = copy_buffers(model)
    call_on(model, copies, [torch.rand(4, 2)])
    assert int(norm.num_batches_tracked) == 0
    assert int(copies["0.num_batches_tracked"]) == 2

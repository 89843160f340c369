import math

import pytest
import torch
from torch import nn

from qat.training.schedule import one_cycle, parameter_groups


@pytest.mark.parametrize("total", [1, 2, 3, 7, 140])
def test_one_cycle_rises_in_a_line_then_falls_to_zero(total: int) -> None:
    factors = [one_cycle(step, total) for step in range(total + 1)]
    peak = total // 4
    assert factors[: peak + 1] == [(step + 1) / (peak + 1) for step in range(peak + 1)]
    assert factors[peak:] == sorted(factors[peak:], reverse=True)
    assert max(factors) == factors[peak] == 1.0
    assert factors[total] == one_cycle(total + 5, total) == 0.0


def test_one_cycle_falls_along_a_cosine() -> None:
    assert one_cycle(25 + 25, 100) == 0.5 * (1 + math.cos(math.pi / 3))


def test_a_run_without_end_keeps_its_rate() -> None:
    assert one_cycle(10_000, math.inf) == 1.0


def test_only_matrices_decay() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.PReLU(2), nn.Linear(2, 3))
    model.register_parameter("scale", nn.Parameter(torch.ones(2, 1, 1, 1)))
    decayed, others = parameter_groups(model, 0.1)
    assert decayed["weight_decay"] == 0.1
    assert others["weight_decay"] == 0.0
    assert [id(p) for p in decayed["params"]] == [id(model[0].weight), id(model[3].weight)]
    assert len(others["params"]) == len(list(model.parameters())) - 2


def test_a_model_without_matrices_has_one_group() -> None:
    assert [group["weight_decay"] for group in parameter_groups(nn.BatchNorm2d(2), 0.1)] == [0.0]

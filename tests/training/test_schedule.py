import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from qat.layers import Quantization, quantize
from qat.quantizers import Scale
from qat.training import Classifier
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
    model.register_parameter("weight", nn.Parameter(torch.ones(2, 1, 1, 1)))  # of no layer
    decayed, others = parameter_groups(model, 0.5, 0.1)
    assert decayed["weight_decay"] == 0.1
    assert others["weight_decay"] == 0.0
    assert [id(p) for p in decayed["params"]] == [id(model[0].weight), id(model[3].weight)]
    assert len(others["params"]) == len(list(model.parameters())) - 2


LEARNED = Quantization(weight_scale="learned", activation_scale="pact", power_of_two=True, first_last_bits=4)


@pytest.mark.parametrize(("quantization", "count"), [(LEARNED, 4), (Quantization(), 0)])
def test_learned_scales_have_a_group_of_their_own(quantization: Quantization, count: int) -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))
    model = quantize(net, quantization, torch.zeros(2, 1, 8, 8))
    groups = parameter_groups(model, 0.5, 0.1, scale_learning_rate=0.25)
    expected = [(0.5, 0.1), (0.5, 0.0), (0.125, 0.0)]
    assert [(g["lr"], g["weight_decay"]) for g in groups] == expected[: 3 if count else 2]
    found = [id(p) for group in groups for p in group["params"]]
    assert sorted(found) == sorted(id(p) for p in model.parameters())
    scales = {id(p) for m in model.modules() if isinstance(m, Scale) for p in m._parameters.values()}
    assert len(scales) == count  # two weights, the input, the ReLU
    assert not scales or {id(p) for p in groups[-1]["params"]} == scales


def test_the_schedule_applies_to_the_scales_too() -> None:
    model = Classifier(options={"width": 4}, quantization=LEARNED, scale_learning_rate=0.5)
    model._fabric = None
    model._trainer = SimpleNamespace(estimated_stepping_batches=4, num_training_batches=4, max_epochs=-1)
    chosen = model.configure_optimizers()
    optimizer, scheduler = chosen["optimizer"], chosen["lr_scheduler"]["scheduler"]
    for step in range(4):
        rate = 0.01 * one_cycle(step, 4)
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([rate, rate, rate / 2], rel=1e-12)
        optimizer.step()
        scheduler.step()


def test_a_model_without_matrices_has_one_group() -> None:
    assert [group["weight_decay"] for group in parameter_groups(nn.BatchNorm2d(2), 0.5, 0.1)] == [0.0]

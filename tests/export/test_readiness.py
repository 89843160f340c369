"""What a model must be before it is exported."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from qat.export import IntegerModel
from qat.export.readiness import activation_quantizers, check_ready, scale_of
from qat.models import SmallCNN
from qat.quantizers import IntGrid


def half_up(x: Tensor) -> Tensor:
    return torch.floor(x + 0.5)


def test_a_trained_and_a_float_model_are_ready(trained: Any) -> None:
    check_ready(trained("small_cnn")[0])
    check_ready(SmallCNN())


def test_the_quantizers_of_activations(trained: Any) -> None:
    names = list(activation_quantizers(trained("small_cnn")[0]))
    acts = [f"blocks.{i}.act.quantizer" for i in range(3)]  # the last feeds an average, and is float
    assert names == ["blocks.0.conv.input_quantizer", *acts, "fc.input_quantizer"]


def test_a_learned_scale_that_crossed_zero(trained: Any) -> None:
    model = copy.deepcopy(trained("small_cnn", activation_scale="learned")[0])
    quantizer = model.fc.input_quantizer
    before = scale_of(quantizer)
    quantizer.scale.value.data.neg_()
    assert torch.equal(scale_of(quantizer), before)
    integers = IntegerModel(model, (1, 28, 28))
    assert integers.compare(torch.rand(20, 1, 28, 28)).predictions == 0


def test_a_rounding_that_runtimes_lack(trained: Any) -> None:
    model = copy.deepcopy(trained("small_cnn")[0])
    model.blocks[1].act.quantizer.rounding = half_up
    with pytest.raises(
        ValueError, match=r"^blocks.1.act: runtimes round half to even, but its rounding does not"
    ):
        check_ready(model)


def test_activations_of_one_signed_bit(trained: Any) -> None:
    model = copy.deepcopy(trained("small_cnn")[0])
    model.fc.input_quantizer.grid = IntGrid(1)
    with pytest.raises(ValueError, match=r"^fc: no format holds activations of 1 signed bit"):
        check_ready(model)


def test_stochastic_rounding_is_ready_because_eval_mode_rounds_to_even(trained: Any) -> None:
    check_ready(trained("small_cnn", rounding="stochastic")[0])

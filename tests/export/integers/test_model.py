"""The network in integers against the trained one."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from qat import Quantization, quantize
from qat.export import IntegerModel


@pytest.mark.parametrize("bits", [8, 4, 2, 1])
@pytest.mark.parametrize("name", ["small_cnn", "resnet8"])
def test_deployable_is_equal_to_the_last_bit(name: str, bits: int, trained: Any) -> None:
    model, images = trained(name, weight_bits=bits, activation_bits=bits, deployable=True)
    integers = IntegerModel(model, tuple(images.shape[1:]))
    done = integers.compare(images)
    assert integers.program.is_exact
    assert done.logits.equal == len(images)
    assert done.predictions == 0
    assert {differ for differ, _ in done.codes.values()} == {0}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("small_cnn", {}),
        ("small_cnn", {"weight_bits": 2, "activation_bits": 2, "per_channel": False}),
        ("small_cnn", {"power_of_two": True}),
        ("lenet", {"weight_bits": 3, "weight_scale": "learned", "activation_scale": "pact"}),
        ("resnet8", {"input_signed": True, "asymmetric": True, "weight_scale": "dorefa"}),
    ],
)
def test_free_scales_differ_by_ties_alone(name: str, settings: dict[str, Any], trained: Any) -> None:
    model, images = trained(name, **settings)
    integers = IntegerModel(model, tuple(images.shape[1:]))
    done = integers.compare(images)
    assert not integers.program.is_exact
    assert done.predictions == 0
    assert done.logits.within >= 0.9 * len(images)
    for differ, total in done.codes.values():  # float32 sums and 31-bit multipliers decide ties differently
        assert differ <= 1e-4 * total


@pytest.mark.parametrize("bias", [False, True])
def test_a_bias_between_two_integers_is_not_exact(bias: bool) -> None:
    torch.manual_seed(0)
    x = torch.rand(8, 1, 6, 6)
    net = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, bias=bias), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3, bias=bias))
    )
    model = quantize(net, Quantization(power_of_two=True), x)
    model(x)
    integers = IntegerModel(model.eval(), (1, 6, 6))
    assert integers.program.is_exact != bias
    assert integers.compare(x).logits.equal == len(x) or bias


@pytest.mark.parametrize("shape", [(28, 28), (2, 1, 28, 28), (1, 0, 28)])
def test_the_shape_of_one_image(shape: tuple[int, ...], trained: Any) -> None:
    model, _ = trained("small_cnn", deployable=True)
    with pytest.raises(ValueError, match="shape must be channels, height and width of one image, got"):
        IntegerModel(model, shape)


def test_it_gives_integers(trained: Any) -> None:
    model, images = trained("small_cnn", deployable=True)
    integers = IntegerModel(model, (1, 28, 28))
    codes = integers.codes(images)
    logits = integers(codes)
    assert codes.dtype == logits.dtype == np.int64
    assert codes.min() >= 0
    assert codes.max() <= 255
    with torch.no_grad():
        expected = model.eval()(images).numpy()
    model.train()
    assert np.array_equal(logits * integers.program.output_scale, expected)
    assert np.array_equal(integers.predict(images), expected.argmax(axis=1))


def test_what_is_proved_of_the_sums(trained: Any) -> None:
    model, _ = trained("small_cnn", deployable=True)
    integers = IntegerModel(model, (1, 28, 28))
    assert [one.layer for one in integers.program.accumulators] == [
        *(f"blocks.{i}.conv" for i in range(4)),
        *("pool", "fc"),
    ]
    weight = model.blocks[1].conv.weight_quantizer.codes(model.blocks[1].conv.effective_weight)
    rows = weight.flatten(1).numpy()
    largest = max((15 * rows.clip(min=0)).sum(1).max(), (-15 * rows.clip(max=0)).sum(1).max())
    assert integers.program.accumulators[1].largest == largest

"""Powers of two: exact values, and the exponent that is nearest."""

import math

import pytest
import torch

from qat.quantizers import IntGrid, ObservedScale, PowerOfTwo, Quantizer
from qat.quantizers.power_of_two import round_exponent


def test_every_exponent_is_exact() -> None:
    for exponent in range(-126, 127):
        power = math.ldexp(1.0, exponent)
        for factor in (0.7072, 1.0, 1.4142):
            if power * factor >= torch.finfo(torch.float32).tiny:
                assert round_exponent(torch.tensor(power * factor)).item() == power


def test_the_boundary_is_the_square_root() -> None:
    x = torch.tensor([0.7071, 0.7072, 1.4142, 1.4143, 3.0, 0.1])
    assert round_exponent(x).tolist() == [0.5, 1, 1, 2, 4, 0.125]


def test_it_composes_with_an_observed_scale_and_shows_its_value() -> None:
    quantizer = Quantizer(IntGrid(4), PowerOfTwo(ObservedScale(7, "max", (2, 1), axis=0)))
    assert quantizer(torch.tensor([[7.0, 1.3], [0.0, -10.0]])).tolist() == [[7, 1], [0, -10]]
    assert quantizer.scale.value.tolist() == [[1.0], [2.0]]
    assert quantizer.scale.inner.value.tolist() == [[1.0], [pytest.approx(10 / 7)]]


def test_the_gradient_is_straight_through() -> None:
    x = torch.tensor([0.3, 5.0], requires_grad=True)
    round_exponent(x).backward(torch.tensor([2.0, -3.0]))
    assert x.grad is not None
    assert x.grad.tolist() == [2, -3]

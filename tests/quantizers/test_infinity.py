"""Infinity and NaN in a quantizer: gradients are finite for every rounding and scale; NaN stays visible."""

from typing import Any

import pytest
import torch
from torch import Tensor

from qat.gradients import ROUNDINGS
from qat.quantizers import Quantizer, activation_quantizer, weight_quantizer

INF, NAN = float("inf"), float("nan")
START = torch.linspace(0, 1, 64).reshape(4, 4, 2, 2)
A: dict[str, dict[str, Any]] = {
    **{name: {"scale": name} for name in ("observed", "learned", "pact")},
    "asymmetric": {"asymmetric": True},
    "power of two": {"power_of_two": True},
    "learned power of two": {"scale": "learned", "power_of_two": True},
}
W: dict[str, dict[str, Any]] = {name: {"scale": name} for name in ("observed", "learned", "dorefa")}
MAKE = {
    **{name: lambda rounding, o=o: activation_quantizer(START, 4, signed=False, rounding=rounding, **o)
       for name, o in A.items()},
    **{f"weight, {name}, {bits} bits": lambda rounding, o=o, bits=bits: weight_quantizer(
        START, bits, axis=0, rounding=rounding, **o) for name, o in W.items() for bits in (1, 4)},
}  # fmt: skip


def gradients(quantizer: Quantizer, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    x = x.clone().requires_grad_()
    y = quantizer(x)
    y.sum().backward()
    assert x.grad is not None
    return x.grad, [p.grad for p in quantizer.parameters() if p.grad is not None]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("mode", [True, False])
def test_gradients_are_finite_for_infinite_and_huge_numbers(name: str, rounding: str, mode: bool) -> None:
    quantizer = MAKE[name](ROUNDINGS[rounding])
    quantizer(START)
    quantizer.freeze() if "observed" in name else None  # else 3.4e38 would be its scale
    x = START.clone()
    x[0] = torch.tensor([INF, -INF, 3.4e38, -3.4e38])[:, None, None]
    value = quantizer.train(mode)(x)
    of_x, of_scale = gradients(quantizer, x)
    assert value.isfinite().all()
    assert of_x.isfinite().all()
    assert all(grad.isfinite().all() for grad in of_scale)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("mode", [True, False])
def test_nan_is_visible_in_the_value(name: str, rounding: str, mode: bool) -> None:
    quantizer = MAKE[name](ROUNDINGS[rounding]).train(mode)
    x = START.clone()
    x[0, 0, 0, 0] = NAN
    with torch.no_grad():
        value = quantizer(x)
        assert value.flatten()[0].isnan()
        if name in A:
            assert quantizer(x, relu=True).flatten()[0].isnan()
    if "dorefa" not in name:  # whose maximum, which all elements share, is NaN
        assert value.flatten()[1:].isfinite().all()
    for grad in gradients(quantizer, x)[1]:
        if "pact" not in name:  # the clip gets gradient of what lies above it alone
            assert grad.isnan().any()


def test_ewgs_gives_the_gradient_of_ste_outside_of_the_grid() -> None:
    x = torch.tensor([INF, 3.4e38, 0.02])
    for rounding in ("ste", "ewgs", "soft", "zero"):
        quantizer = activation_quantizer(torch.tensor([0.15]), 4, signed=False, rounding=ROUNDINGS[rounding])
        of_x, _ = gradients(quantizer.eval(), x)
        assert of_x[:2].tolist() == [0, 0]
        assert of_x[2].isfinite()

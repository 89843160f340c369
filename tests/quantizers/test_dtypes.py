"""Scales and statistics are float32, whatever the default dtype and the dtype of the model."""

import copy
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qat import Quantization, quantize
from qat.models import SmallCNN
from qat.quantizers import Quantizer, activation_quantizer, weight_quantizer
from qat.torch_private import TorchDispatchMode, tensors_in

X = torch.linspace(0, 1, 96).reshape(4, 6, 2, 2)
A: dict[str, dict[str, Any]] = {
    **{observer: {"observer": observer} for observer in ("ema", "percentile", "mse")},
    **{scale: {"scale": scale} for scale in ("learned", "pact")},
    "asymmetric": {"asymmetric": True},
    "power of two": {"power_of_two": True},
}
W: dict[str, dict[str, Any]] = {
    **{observer: {"observer": observer} for observer in ("max", "percentile", "mse")},
    **{scale: {"scale": scale} for scale in ("learned", "dorefa")},
    "power of two": {"observer": "mse", "power_of_two": True},
}
KINDS = [(activation_quantizer, {"signed": False, **options}) for options in A.values()]
KINDS += [(weight_quantizer, {"axis": 0, **options}) for options in W.values()]
each_kind = pytest.mark.parametrize(("build", "options"), KINDS, ids=[*A, *(f"weight, {w}" for w in W)])
each_default = pytest.mark.parametrize("default", [torch.bfloat16, torch.float16, torch.float64])


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def is_float32(quantizer: nn.Module) -> bool:
    return {x.dtype for x in (*quantizer.parameters(), *quantizer.buffers())} == {torch.float32}


def step(quantizer: Quantizer, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = quantizer(x)
    y.sum().backward()
    assert x.grad is not None
    return [y.detach(), x.grad, *(p.grad for p in quantizer.parameters() if p.grad is not None)]


@each_kind
@each_default
def test_another_default_dtype_changes_nothing(build: Any, options: Any, default: torch.dtype) -> None:
    expected = build(X, 4, **options)
    with default_dtype(default):
        quantizer = build(X, 4, **options)
        assert is_float32(quantizer)
        assert quantizer.scale(X).dtype == torch.float32
        results = step(quantizer, 2 * X)
        codes = quantizer.codes(X)
        clone = copy.deepcopy(quantizer)
        clone.load_state_dict(quantizer.state_dict())
        assert is_float32(clone)
    assert all(map(torch.equal, results, step(expected, 2 * X)))
    assert torch.equal(codes, expected.codes(X))
    assert torch.equal(clone.scale(X), expected.scale(X))


@each_kind
@pytest.mark.parametrize("assign", [True, False])
def test_a_state_of_another_dtype_is_loaded_as_float32(build: Any, options: Any, assign: bool) -> None:
    quantizer = build(X, 4, **options)
    state = {k: v.bfloat16() if v.is_floating_point() else v for k, v in quantizer.state_dict().items()}
    model = nn.ModuleDict({"q": build(X, 4, **options)})
    model.load_state_dict({f"q.{key}": value for key, value in state.items()}, assign=assign)
    assert is_float32(model)
    quantizer.load_state_dict(state, assign=assign)
    assert is_float32(quantizer)
    assert all(value.dtype != torch.float32 for value in state.values())  # the caller's own tensors


@each_default
@pytest.mark.parametrize("scale", ["observed", "learned"])
def test_a_model_that_is_quantized_in_another_dtype(default: torch.dtype, scale: Any) -> None:
    """`quantize` under another default, then `float()`: as if it had been float32 from the start."""
    config = Quantization(weight_scale=scale, activation_scale=scale)
    with default_dtype(default):
        net = quantize(SmallCNN(width=4), config, torch.ones(2, 1, 28, 28))
    for convert in (net.half, net.bfloat16, net.double, net.float):
        convert()
        for part in net.modules():
            assert not isinstance(part, Quantizer) or is_float32(part)
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = quantize(SmallCNN(width=4), config, torch.zeros(2, 1, 28, 28))
    other.load_state_dict(torch.load(file, weights_only=True))
    images = torch.linspace(0, 1, 1568).reshape(2, 1, 28, 28)
    assert torch.equal(net.eval()(images), other.eval()(images))


class NoFloat64(TorchDispatchMode):
    """Refuses operators with a float64 result, as Apple's GPU does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        assert all(x.dtype != torch.float64 for x in tensors_in(result)), f"{func} gives float64"
        return result


@each_kind
def test_no_float64_is_computed(build: Any, options: Any) -> None:
    with NoFloat64():
        quantizer = build(X, 4, **options)
        step(quantizer, X)
        quantizer.freeze()
        step(quantizer.eval(), X)
        quantizer.codes(X)

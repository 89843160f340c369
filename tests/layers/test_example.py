"""A run of an example: each function that does one refuses bad input in one line."""

from collections.abc import Callable
from functools import partial
from types import FunctionType

import pytest
import torch
from torch import Tensor, nn

from qat.layers import Quantization, fold_batchnorm, quantize, summary

RUNNERS = [
    partial(quantize, config=Quantization()),
    pytest.param(lambda model, example: summary(model, example), id="summary"),
    pytest.param(lambda model, example: fold_batchnorm(model, example), id="fold_batchnorm"),
]


class Lookup(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return {}["logits"]


class Picky(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] == 3, "3 features, please"
        return x


X = torch.rand(2, 4)
LINEAR = nn.Linear(4, 2)


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize(
    ("model", "example", "message"),
    [
        (LINEAR, X[:, :3], r"through the model itself \(Linear\): mat1 and mat2 shapes cannot be multiplied"),
        (
            LINEAR,
            (X, X),
            r"through the model itself \(Linear\): TypeError: .* takes 2 positional arguments but 3",
        ),
        (nn.Sequential(Lookup()), X, r"through 0 \(Lookup\): KeyError: 'logits'"),
        (nn.Sequential(Picky()), X, r"through 0 \(Picky\): AssertionError: 3 features, please"),
        (nn.Sequential(nn.LazyLinear(3)), X, "lazy modules have no weights yet: 0; run the model on a batch"),
        (
            lambda: nn.Sequential(torch.jit.script(nn.ReLU())),
            X,
            "TorchScript cannot be .*: 0; take the module it was",
        ),
        (
            lambda: torch.jit.trace(LINEAR, X),
            X,
            "TorchScript cannot be .*: the model itself; take the module it was",
        ),
        (nn.Linear, X, "model must be an nn.Module, got the class Linear; make one of it first"),
        ({"fc": LINEAR}, X, "model must be an nn.Module, got dict"),
        (LINEAR, None, "example must be a tensor, or a tuple that starts with one; got NoneType"),
        (LINEAR, [X], "example must be a tensor, or a tuple that starts with one; got list"),
        (LINEAR, (), "example must be a tensor, or a tuple that starts with one; got nothing"),
        (LINEAR, X[:0], r"example must start with a batch of at least [12] samples?, got 0"),
        (nn.DataParallel(LINEAR), X, "DataParallel cannot be .*: the model itself; take the module inside"),
    ],
)
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
def test_refused(run: Callable, model, example: Tensor | tuple, message: str) -> None:
    model = model() if type(model) is FunctionType else model
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in modules]
    with pytest.raises(ValueError, match=message):
        run(model, example=example)
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules]


@pytest.mark.parametrize("x", [X.to_sparse(), X * 1j, X.to("meta")])
@pytest.mark.parametrize("run", RUNNERS)
def test_tensors_that_layers_do_not_support(run: Callable, x: Tensor) -> None:
    with pytest.raises(
        ValueError, match=f"example must hold dense real tensors, got a {x.layout}.*{x.dtype}"
    ):
        run(LINEAR, example=x)


@pytest.mark.parametrize("config", [None, {"weight_bits": 4}, Quantization])
def test_a_configuration_of_a_wrong_type(config: object) -> None:
    with pytest.raises(ValueError, match="config must be a Quantization, got "):
        quantize(nn.Linear(4, 2), config, X)


def test_inference_tensors_and_inference_mode() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    with torch.inference_mode():
        x = torch.rand(2, 4)
        assert fold_batchnorm(model, x).folded == {"1": "0"}
    quantize(model, Quantization(), x)
    with torch.inference_mode():
        assert len(summary(model, x).rows) == 2
    model(X).sum().backward()
    assert model[0].weight.grad is not None

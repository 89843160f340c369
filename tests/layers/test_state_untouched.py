"""Every error of `quantize` and `fold_batchnorm` leaves the model as it was."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qat.layers import Quantization, fold_batchnorm, quantize

X = torch.rand(2, 3, 8, 8)


def convnet(*last: nn.Module) -> nn.Sequential:
    front = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    return nn.Sequential(*front, nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), *last).eval()


class OneDimension(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2)


def deployable(**options: Any) -> Quantization:
    return Quantization(deployable="onnx", **options)


def snapshot(model: nn.Module) -> Any:
    modules = [(name, type(m), m.training, sorted(vars(m))) for name, m in model.named_modules()]
    return modules, copy.deepcopy(model.state_dict())


def assert_untouched(model: nn.Module, before: Any) -> None:
    modules, state = snapshot(model)
    assert modules == before[0]
    assert state.keys() == before[1].keys()
    assert all(torch.equal(x, before[1][key]) for key, x in state.items())


@pytest.mark.parametrize(
    ("model", "config", "message"),
    [
        (
            convnet(OneDimension(), nn.Conv1d(4, 2, 3)),
            deployable(),
            "deployable knows .*, but 6 is a Conv1d",
        ),
        (convnet(nn.ConvTranspose2d(4, 2, 3)), deployable(), "but 5 is a ConvTranspose2d"),
        (convnet(nn.ConvTranspose2d(4, 4, 3, groups=2), nn.BatchNorm2d(4)), deployable(), "but 5 is a ConvT"),
        (convnet(nn.ReLU(), nn.BatchNorm2d(4)), deployable(), "every BatchNorm folded, but 6 cannot be"),
        (convnet(), Quantization(layers={"conv": {"weight_bits": 2}}), "pattern 'conv' matches nothing"),
        (convnet(), Quantization(layers={"*": {}, "3": {"weight_bits": 2}}), "has no effect"),
        (
            convnet(nn.ReLU(), nn.Conv2d(4, 2, 1)),
            Quantization(layers={"6": {"activation_bits": 32}, "5": {"activation_bits": 4}}),
            "6 cannot have activation_bits 32",
        ),
        (convnet(nn.Linear(7, 2)), Quantization(), r"does not run through 5 \(Linear\)"),
        (nn.Sequential(nn.ReLU()), Quantization(), "ran no plain"),
    ],
)
def test_an_error_of_quantize(model: nn.Module, config: Quantization, message: str) -> None:
    before = snapshot(model)
    with pytest.raises(ValueError, match=message):
        quantize(model, config, X)
    assert_untouched(model, before)


class NotCopied:
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError


def test_a_model_that_cannot_be_copied_is_converted() -> None:
    model = convnet()
    model.extra = NotCopied()
    assert quantize(model, deployable(), X) is model


@pytest.mark.parametrize("run", [fold_batchnorm, lambda model, x: quantize(model, Quantization(), x)])
def test_a_model_that_was_made_in_inference_mode(run: Any) -> None:
    with torch.inference_mode():
        model = convnet()
    with pytest.raises(ValueError, match=r"0\.weight was made in inference mode and does not train"):
        run(model, X)
    assert type(model[0]) is nn.Conv2d


def outputs(prepare: Any) -> list[Tensor]:
    torch.manual_seed(0)
    model = convnet(nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    model.train()(X)
    prepare(model.eval())
    tensors = [*model.state_dict().values(), model(X)]
    model.train()(X).sum().backward()
    return [*tensors, *(p.grad for p in model.parameters())]


AMBIENT = {
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "meta": lambda: torch.device("meta"),
    "grad": torch.enable_grad,
}


@pytest.mark.parametrize("ambient", AMBIENT)
@pytest.mark.parametrize(
    "run",
    [
        fold_batchnorm,
        lambda model, x: quantize(model, Quantization(), x),
        lambda model, x: quantize(model, Quantization(weight_scale="learned", activation_scale="learned"), x),
        lambda model, x: quantize(model, deployable(), x),
    ],
    ids=["fold", "observed", "learned", "deployable"],
)
def test_the_state_around_a_call_does_not_matter(run: Any, ambient: str) -> None:
    def within(model: nn.Module) -> None:
        with AMBIENT[ambient]():
            run(model, X)

    expected = outputs(lambda model: run(model, X))
    assert all(torch.equal(a, b) for a, b in zip(outputs(within), expected, strict=True))


def test_folding_in_inference_mode_gives_a_model_that_trains() -> None:
    def within(model: nn.Module) -> None:
        with torch.inference_mode():
            fold_batchnorm(model, X)

    expected = outputs(lambda model: fold_batchnorm(model, X))
    assert all(torch.equal(a, b) for a, b in zip(outputs(within), expected, strict=True))


def test_folding_uses_double_precision_on_the_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    to_double = Tensor.double
    monkeypatch.setattr(Tensor, "double", lambda x: seen.append(str(x.device)) or to_double(x))
    moved = Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda x: seen.append("moved") or moved(x))
    fold_batchnorm(convnet(), X)
    assert seen == ["moved", "cpu"] * (len(seen) // 2)
    assert seen

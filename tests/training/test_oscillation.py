"""Weights that swing between two codes keep one of them."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from torch import Tensor

from qat.layers import Quantization
from qat.training import Classifier, FreezeOscillating
from qat.training.oscillation import _start, _update
from tests.training.test_phases import Save, loader

MIDRISE = Quantization(2, 2, weight_levels="midrise", weight_observer="mean")


def reference(codes: list[float], limit: float, step: int) -> tuple[int | None, float]:
    """The step in which one weight is frozen, and its code, by a loop."""
    often, mean, last, turn = 0.0, codes[0], codes[0], 0.0
    for n, code in enumerate(codes[1:]):
        change = math.copysign(1, code - last) if code != last else 0
        turned = bool(change and turn and change != turn)
        often, mean = 0.99 * often + 0.01 * turned, 0.99 * mean + 0.01 * code
        turn, last = change or turn, code
        if often > limit:
            first = step - 1
            return n, round((mean - first) / step) * step + first
    return None, last


@pytest.mark.parametrize("step", [1, 2])
def test_each_weight_is_frozen_as_by_a_loop(step: int) -> None:
    generator = torch.Generator().manual_seed(0)
    draws = torch.randint(0, 2, (60, 30), generator=generator)
    draws[:, :5] = 0  # never turn
    paths = (draws * step + (step - 1)).float()
    state = _start(paths[0])
    frozen: dict[int, tuple[int, float]] = {}
    for n, codes in enumerate(paths[1:]):
        seen = torch.where(state["frozen"], state["code"], codes)
        _update(state, seen, 0.05, step)
        for i in state["frozen"].nonzero().flatten().tolist():
            frozen.setdefault(i, (n, state["code"][i].item()))
    expected = {i: reference(paths[:, i].tolist(), 0.05, step) for i in range(30)}
    assert frozen == {i: found for i, found in expected.items() if found[0] is not None}
    assert 3 < len(frozen) <= 25


def fitted(
    epochs: int, ckpt: Path | None = None, *callbacks: Any, **given: Any
) -> tuple[Classifier, Trainer]:
    torch.manual_seed(3)
    settings = {"quantization": MIDRISE, "freeze_oscillating": 0.001, "float_epochs": 1} | given
    model = Classifier(options={"width": 4}, learning_rate=0.05, **settings)
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = Trainer(
        accelerator="cpu", enable_checkpointing=False, max_epochs=epochs, callbacks=list(callbacks), **quiet
    )
    trainer.fit(model, loader(), loader(), ckpt_path=ckpt, weights_only=True)
    return model, trainer


def freezer(trainer: Trainer) -> FreezeOscillating:
    return next(c for c in trainer.callbacks if isinstance(c, FreezeOscillating))  # type: ignore[attr-defined]


def codes(model: Any, name: str) -> Tensor:
    layer = model.model.get_submodule(name)
    return layer.weight_quantizer.codes(layer.effective_weight)


CASES: dict[str, Any] = {
    "midrise": {},
    "midtread, checkpointed": {"quantization": Quantization(2, 2), "checkpoint": ["blocks.*"]},
    "learned": {"quantization": Quantization(3, 3, weight_scale="learned")},
    "schedule": {"float_epochs": 0, "weight_schedule": [32, 4, 2]},
}


@pytest.mark.parametrize("case", CASES)
def test_frozen_weights_keep_their_code_and_a_resumed_run_is_the_same(case: str, tmp_path: Path) -> None:
    model, trainer = fitted(6, None, Save(tmp_path), **CASES[case])
    states = freezer(trainer)._layers
    assert sum(int(state["frozen"].sum()) for state in states.values()) > 10
    assert 0 < trainer.callback_metrics["frozen_weights"] < 1
    for name, state in states.items():
        found = codes(model, name)
        assert torch.equal(found[state["frozen"]], state["code"][state["frozen"]].int()), name
    other, _ = fitted(6, tmp_path / "epoch=3.ckpt", **CASES[case])
    expected = model.state_dict()
    assert [k for k, value in other.state_dict().items() if not torch.equal(value, expected[k])] == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"freeze_oscillating": 0.0}, r"freeze_oscillating must be in \(0, 0.1\], got 0.0"),
        ({"freeze_oscillating": 0.2}, "freeze_oscillating must be in"),
        ({"freeze_oscillating": math.nan}, "freeze_oscillating must be in"),
        (
            {"quantization": Quantization(deployable=True)},
            "freeze_oscillating must be left out with dep",
        ),
        (
            {"quantization": Quantization(32, 32, 32, 32), "float_epochs": 0},
            "FreezeOscillating needs",
        ),
    ],
)
def test_what_it_refuses(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(1, **given)

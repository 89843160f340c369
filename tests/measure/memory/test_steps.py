"""What the steps show, and that they would show it if it were otherwise."""

from contextlib import nullcontext

import pytest
import torch

from qat.measure.memory import steps as module
from qat.measure.memory.case import Case
from qat.measure.memory.modes import BOTH, FLOAT, MODES, PLAIN
from qat.measure.memory.steps import Steps, ratios, train_in_turn
from qat.measure.memory.trainee import Trainee

CASE = Case("resnet8", image=(3, 8, 8), batch=4)


def test_every_mode_equals_its_twin() -> None:
    seen: list[str] = []
    steps = train_in_turn(CASE, 4, seen.append)
    assert seen == list(MODES) * 4
    assert {name: each.identical for name, each in steps.items()} == {
        name: mode.twin and True for name, mode in MODES.items()
    }
    assert all(len(each.seconds) == 3 and min(each.seconds) > 0 for each in steps.values())


@pytest.mark.parametrize("what", ["loss", "gradient", "state"])
def test_what_differs_is_seen(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Spoilt(Trainee):
        def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            loss = super().step(images, labels)
            if self.packed:
                with torch.no_grad() if what != "loss" else nullcontext():
                    {
                        "loss": loss,
                        "gradient": self.model.fc.bias.grad,
                        "state": self.model.stem[1].num_batches_tracked,
                    }[what].add_(1)
            return loss

    monkeypatch.setattr(module, "Trainee", Spoilt)
    steps = train_in_turn(CASE, 3, lambda _: None)
    assert [name for name, each in steps.items() if each.identical is False] == ["packed", BOTH]


def test_ratios_are_taken_round_by_round() -> None:
    steps = {FLOAT: Steps([1.0, 10.0, 2.0]), PLAIN: Steps([1.5, 20.0, 2.0])}
    spread = ratios(steps, PLAIN)
    assert (spread.low, spread.median, spread.high) == (1.25, 1.5, 1.75)

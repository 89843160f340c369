"""The parts of a study, put together."""

import pytest
import torch

from qat.measure.memory import study as module
from qat.measure.memory.case import Case
from qat.measure.memory.child import Growth
from qat.measure.memory.modes import BOTH, FLOAT, MODES
from qat.measure.memory.saved import saved
from qat.measure.memory.study import run_study, work

CASE = Case("resnet8", image=(3, 8, 8), batch=4)


def test_all_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1000 bytes, and 100 an image.
    monkeypatch.setattr(module, "growth", lambda _case, _name, size: Growth(1000 + 100 * size, 7))
    told: list[tuple[str, float]] = []
    study = run_study(CASE, 3, [2, 4], 11_000, lambda *args: told.append(args))
    assert sum(share for _, share in told) == work(3, [2, 4], budget=True)
    assert study.rows.keys() == MODES.keys()
    for name, mode in MODES.items():
        row = study.rows[name]
        assert row.saved == saved(CASE.build(mode), torch.rand(4, 3, 8, 8), mode.packed)
        assert (row.peak, row.held) == (1400, 7)
    assert study.rows[BOTH].saved < 0.1 * study.rows[FLOAT].saved
    assert study.budget is not None
    assert set(study.budget.largest.values()) == {100}
    assert study.depth is not None
    assert study.depth.depths == [2, 4]


def test_nothing_that_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "growth", lambda *_: Growth(1, 1))
    told: list[float] = []
    study = run_study(CASE, 3, [], None, lambda _, share: told.append(share))
    assert (study.depth, study.budget) == (None, None)
    assert sum(told) == work(3, [], budget=False)

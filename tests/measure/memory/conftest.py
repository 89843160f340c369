"""A study that costs nothing: numbers that are easy to check."""

import pytest

from qat.measure.memory.budget import Budget
from qat.measure.memory.case import Case
from qat.measure.memory.depth import SQRT, Curve, Sweep
from qat.measure.memory.modes import FLOAT, MODES
from qat.measure.memory.steps import Steps
from qat.measure.memory.study import Row, Study


@pytest.fixture(autouse=True)
def _eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QAT_COMPILE", "0")  # compiling takes longer than all tests here


@pytest.fixture
def study() -> Study:
    """Mode n has (6 - n) times 100 MB, and takes n + 1 times as long as float."""
    rows = {}
    for place, (name, mode) in enumerate(MODES.items()):
        size = (6 - place) * 100_000_000
        steps = Steps([0.5 * (place + 1)] * 3, None if mode.twin is None else True)
        rows[name] = Row(size, steps, size + 20_000_000, size + 10_000_000)
    curves = {
        name: Curve([1e6 * (place + 1), 2e6 * (place + 1)], [0.0, 0.0], place + 0.25)
        for place, name in enumerate(MODES)
    }
    curves[SQRT] = Curve([0.5e6, 0.7e6], [1e5, 3e5], 0.1)
    points = {name: ((128, row.peak), (256, 2 * row.peak)) for name, row in rows.items()}
    largest = {name: 100 * (place + 1) for place, name in enumerate(MODES)}
    assert next(iter(MODES)) == FLOAT
    return Study(Case(), rows, Sweep([8, 16], curves), Budget(2_000_000_000, points, largest), 1.0)

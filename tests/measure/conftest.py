"""A study that costs nothing, with numbers that are easy to check."""

import pytest

from qat.measure.budget import BatchBudget
from qat.measure.depth import SQRT, Curve, DepthSweep
from qat.measure.memory_study import MemoryRow, MemoryStudy
from qat.measure.modes import FLOAT, MEMORY_MODES, reference_of
from qat.measure.rounds import Timing
from qat.measure.workload import Workload


@pytest.fixture(autouse=True)
def _eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QAT_COMPILE", "0")  # compiling takes longer than all tests here


@pytest.fixture
def study() -> MemoryStudy:
    """Mode n has (6 - n) times 100 MB, and takes n + 1 times as long as float."""
    rows = {}
    for place, name in enumerate(MEMORY_MODES):
        size = (6 - place) * 100_000_000
        timing = Timing(name, seconds=[0.5 * (place + 1)] * 3)
        identical = None if reference_of(name) is None else True
        rows[name] = MemoryRow(size, timing, identical, size + 20_000_000, size + 10_000_000)
    curves = {
        name: Curve([1e6 * (place + 1), 2e6 * (place + 1)], [0.0, 0.0], place + 0.25)
        for place, name in enumerate(MEMORY_MODES)
    }
    curves[SQRT] = Curve([0.5e6, 0.7e6], [1e5, 3e5], 0.1)
    points = {name: ((128, row.peak), (256, 2 * row.peak)) for name, row in rows.items()}
    largest = {name: 100 * (place + 1) for place, name in enumerate(MEMORY_MODES)}
    assert MEMORY_MODES[0] == FLOAT
    budget = BatchBudget(2_000_000_000, points, largest)
    return MemoryStudy(Workload(), rows, DepthSweep([8, 16], curves), budget, 1.0)

"""Saved bytes against depth: slopes that can be calculated."""

from qat.measure.depth import SQRT, sweep_depths
from qat.measure.modes import FLOAT, MEMORY_MODES, MODES, PACKED, PACKED_CHECKPOINTED, QAT, reference_of
from qat.measure.workload import Workload


def test_slopes_and_segments() -> None:
    workload, seen = Workload(image=(3, 16, 16), checkpoint=("layers.*",)), []  # of another model
    found = sweep_depths(workload, [9, 4, 4], lambda name, depth: seen.append((name, depth)))
    assert found.depths == [4, 9]
    assert seen == [(name, depth) for name in [*MEMORY_MODES, SQRT] for depth in (4, 9)]
    slope = {name: curve.slope for name, curve in found.curves.items()}
    # Per element: two inputs of convolutions and two of BatchNorms in floats; the statistics come on top.
    assert 16 <= slope[FLOAT] < 16.1
    assert slope["float, checkpointed"] == slope["qat, checkpointed"] == 4
    assert slope[PACKED_CHECKPOINTED] == 0.5  # 4 bits
    assert slope[PACKED] < 10 < 16 < slope[QAT]
    block = 16 * 16 * 16
    for name in MEMORY_MODES:
        again = {FLOAT: slope[FLOAT], QAT: slope[PACKED if MODES[name].packed else QAT]}
        recomputed = again[reference_of(name) or ""] * block if MODES[name].checkpointed else 0
        assert found.curves[name].recomputed == [recomputed] * 2
    # Segments of 2 and 3: their inputs are kept, four bytes an element.
    sqrt, single = found.curves[SQRT], found.curves["float, checkpointed"]
    assert [a - b for a, b in zip(single.saved, sqrt.saved, strict=True)] == [2 * 4 * block, 6 * 4 * block]
    assert sqrt.recomputed == [2 * slope[FLOAT] * block, 3 * slope[FLOAT] * block]

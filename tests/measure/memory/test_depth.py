"""Saved bytes against depth: slopes that can be calculated."""

import pytest

from qat.measure.memory.case import Case
from qat.measure.memory.depth import SQRT, check_depths, sweep
from qat.measure.memory.modes import BOTH, FLOAT, MODES, PLAIN


def test_slopes_and_segments() -> None:
    case, seen = Case(image=(3, 16, 16), checkpoint=["layers.*"]), []  # of another model
    found = sweep(case, [9, 4, 4], lambda name, depth: seen.append((name, depth)))
    assert found.depths == [4, 9]
    assert seen == [(name, depth) for name in [*MODES, SQRT] for depth in (4, 9)]
    slope = {name: curve.slope for name, curve in found.curves.items()}
    # Per element: two inputs of convolutions and two of BatchNorms in floats; the statistics come on top.
    assert 16 <= slope[FLOAT] < 16.1
    assert slope["float checkpointed"] == slope["checkpointed"] == 4
    assert slope[BOTH] == 0.5  # 4 bits
    assert slope["packed"] < 10 < 16 < slope[PLAIN]
    block = 16 * 16 * 16
    for name, mode in MODES.items():
        curve = found.curves[name]
        again = {FLOAT: slope[FLOAT], PLAIN: slope["packed" if mode.packed else PLAIN]}
        twin = mode.twin or ""
        assert curve.recomputed == [again[twin] * block if mode.checkpointed else 0] * 2
    # Segments of 2 and 3: their inputs are kept, four bytes an element.
    sqrt, single = found.curves[SQRT], found.curves["float checkpointed"]
    assert [a - b for a, b in zip(single.saved, sqrt.saved, strict=True)] == [2 * 4 * block, 6 * 4 * block]
    assert sqrt.recomputed == [2 * slope[FLOAT] * block, 3 * slope[FLOAT] * block]


@pytest.mark.parametrize("depths", [[8], [8, 8], [0, 8]])
def test_bad_depths(depths: list[int]) -> None:
    given = " ".join(map(str, depths))
    with pytest.raises(ValueError, match=f"depth must be two or more numbers of blocks, .*; got {given}$"):
        check_depths(depths)

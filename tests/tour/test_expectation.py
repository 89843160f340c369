"""When a measured value agrees with the expected one."""

import math
from typing import Any

import pytest

from qat.tour.expectation import agrees


@pytest.mark.parametrize(
    ("expected", "measured", "same"),
    [
        ([0.0, 1.0], [0.0, 1.0], True),
        ([0.0, 1.0], [1e-12, 1.0], False),
        ([1 / 6], [0.1666666716337204], True),
        ([1.0], [1.0001], False),
        ([1.0], [1.0, 2.0], False),
        ((True, False), (True, False), True),
        ((True, False), [True, False], False),
        (1, True, False),
        (True, 1, False),
        (False, None, False),
        (math.inf, math.inf, True),
        (1.0, math.nan, False),
        (1.0, "1.0", False),
        ("a", "ab", False),
        ({"contains": "b"}, "abc", True),
        ({"contains": "d"}, "abc", False),
        ({"contains": "b"}, None, False),
        ({"at most": 1.1}, 1.1, True),
        ({"at most": 1.1}, 1.2, False),
        ({"at most": 1.1}, True, False),
        ({"at most": 1.1}, "1", False),
        ({"at most": 1.1}, math.nan, False),
    ],
)
def test_agrees(expected: Any, measured: Any, same: bool) -> None:
    assert agrees(expected, measured) is same

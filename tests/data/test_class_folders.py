import os
import random
import sys
from pathlib import Path

import pytest

from qat.data.class_folders import class_names, natural


@pytest.mark.parametrize(
    "names",
    [
        ["1", "2", "10"],
        ["-10", "-1", "0", "0.25", "0.5", "+1", "2", "10", "1000000000000000000001"],
        ["0", "00", "000", "01", "1"],
        ["3", "20", "Dog", "cat", "cat2", "cat10", "cat10b", "cat10b2", "dog"],
        ["1_one", "2_two", "10_ten"],
        ["v1.2", "v1.9", "v1.10", "v2"],
        ["a1b2", "a1b10", "a2b1"],
        ["7", "7 up", "8 up", "10 up"],
        ["cat", "\u00e9t\u00e9", "\u732b", "\u732b2"],
    ],
)
def test_natural_order(names: list[str]) -> None:
    shuffled = random.Random(0).sample(names, len(names))
    assert sorted(shuffled, key=natural) == names


@pytest.mark.skipif(sys.platform != "linux", reason="other systems store names as text")
def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    for part in ("train", "test"):
        os.makedirs(os.fsencode(tmp_path / part) + b"/caf\xe9")  # noqa: PTH103
    with pytest.raises(ValueError, match=r"^data_root: the name '[^\n]*' must be in UTF-8; rename it$"):
        class_names(tmp_path)

"""Integer grids: ends and levels for every width."""

from typing import Any

import pytest

from qat.quantizers import IntGrid


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7, 8, 16])
def test_ends_by_width(bits: int) -> None:
    half = 2 ** (bits - 1)
    narrow, full, unsigned = IntGrid(bits), IntGrid(bits, narrow=False), IntGrid(bits, signed=False)
    assert (narrow.low, narrow.high, narrow.levels) == (1 - half, half - 1, 2**bits - 1)
    assert (full.low, full.high, full.levels) == (-half, half - 1, 2**bits)
    assert (unsigned.low, unsigned.high, unsigned.levels) == (0, 2**bits - 1, 2**bits)


def test_one_bit() -> None:
    signed, unsigned = IntGrid(1), IntGrid(1, signed=False)
    assert (signed.low, signed.high, signed.step, signed.levels) == (-1, 1, 2, 2)
    assert (unsigned.low, unsigned.high, unsigned.step, unsigned.levels) == (0, 1, 1, 2)


@pytest.mark.parametrize("bits", [0, 9, -1, 32, 15])
def test_width_out_of_range(bits: int) -> None:
    with pytest.raises(ValueError, match=f"bits must be one of the integers 1, 2, .*16; got {bits}"):
        IntGrid(bits)


@pytest.mark.parametrize("bits", [1.5, "four", 4.0, True, None])
def test_width_not_an_integer(bits: object) -> None:
    with pytest.raises(ValueError, match="bits must be one of the integers"):
        IntGrid(bits)


def test_narrow_must_fit() -> None:
    with pytest.raises(ValueError, match="narrow must be False or None on an unsigned grid"):
        IntGrid(4, signed=False, narrow=True)
    with pytest.raises(ValueError, match="narrow must be True or None at 1 signed bit"):
        IntGrid(1, narrow=False)


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_midrise(bits: int) -> None:
    grid = IntGrid(bits, midrise=True)
    assert (grid.low, grid.high, grid.step, grid.levels) == (1 - 2**bits, 2**bits - 1, 2, 2**bits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 2, "signed": False}, "midrise must be False on an unsigned grid"),
        ({"bits": 5}, "midrise must be False with more than 4 bits, got True with 5"),
        ({"bits": 2, "narrow": False}, "narrow must be True or None on a midrise grid"),
        ({"bits": 2, "midrise": 1}, "midrise must be True or False, got 1"),
    ],
)
def test_midrise_must_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IntGrid(**({"midrise": True} | options))

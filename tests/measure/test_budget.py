"""The largest batch, from a line through two points."""

import pytest

from qat.measure.budget import largest_batch, parse_bytes, second_batch


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2 * 10**9), ("512MiB", 2**29), ("1.5 kb", 1500), ("64", 64), ("1e9", 10**9), (" 1TB ", 10**12)],
)
def test_bytes_as_text(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "2 GBit", "-1GB", "0GB", "1.2.3GB", "1e999"])
def test_bad_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"budget must be a number of bytes, as in 2GB or 512MiB; got '"):
        parse_bytes(text)


def test_where_the_line_meets_the_budget() -> None:
    # 10 bytes, and 3 an image.
    assert largest_batch(((2, 16), (4, 22)), 100) == 30
    assert largest_batch(((4, 22), (2, 16)), 102) == 30
    assert largest_batch(((2, 16), (4, 22)), 9) == 0
    assert largest_batch(((2, 16), (4, 16)), 100) is None


def test_the_second_point() -> None:
    assert second_batch((128, 100), 1000) == 320  # a quarter of 1280
    assert second_batch((128, 100), 10_000) == 1024  # not more than eight times
    assert second_batch((128, 100), 500) == 64  # 160 would be too near
    assert second_batch((4, 0), 10) == 10

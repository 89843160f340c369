"""Values as short text."""

import pytest
import torch

from qat.tour.text import excerpt, readable, short


def test_a_tensor_is_its_elements_or_its_shape() -> None:
    assert short(torch.tensor([[-0.0]])) == "0"
    assert short(torch.tensor([1 / 6, 1.0])) == "[0.1667, 1]"
    assert short(torch.full((5,), 1 / 6)) == "[0.167, 0.167, 0.167, 0.167, 0.167]"
    assert short(torch.zeros(40)) == "40 elements"
    assert short(torch.zeros(2, 3)) == "2x3"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"at most": 1.1}, "at most 1.1"),
        ({"contains": "b"}, "contains: b"),
        ((True, None), "(True, None)"),
        ([1 / 3, [2.0]], "[0.333333, [2]]"),
    ],
)
def test_readable(value: object, text: str) -> None:
    assert readable(value) == text


def test_of_a_long_message_the_expected_part_is_shown() -> None:
    message = "a" * 200 + "the point" + "b" * 200
    assert excerpt({"contains": "the point"}, message) == "... the point" + "b" * 91 + " ..."
    assert excerpt({"contains": "missing"}, message) == "a" * 100 + " ..."
    assert excerpt("short", "short") == "short"

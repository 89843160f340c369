"""Globs over module names, and errors with the nearest names."""

import pytest

from qat.names import check_class_names, match_names, unknown_name

NAMES = ["blocks.0.conv", "blocks.0.bn", "blocks.1.conv", "fc"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("fc", ["fc"]),
        ("blocks.0.*", ["blocks.0.conv", "blocks.0.bn"]),
        ("*.conv", ["blocks.0.conv", "blocks.1.conv"]),
        ("blocks.[01].conv", ["blocks.0.conv", "blocks.1.conv"]),
        ("*", NAMES),
    ],
)
def test_a_star_crosses_dots(pattern: str, found: list[str]) -> None:
    assert match_names(pattern, NAMES, "pattern") == found


def test_no_match_lists_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"^pattern 'blocks.0.cnov' matches nothing; nearest: blocks.0.conv"):
        match_names("blocks.0.cnov", NAMES, "pattern")


def test_a_name_far_from_all_lists_all() -> None:
    assert str(unknown_name("loss", "xyz", ["huber", "mse"])) == "unknown loss 'xyz'; choose from: huber, mse"


def test_case_counts() -> None:
    with pytest.raises(ValueError, match="nearest: fc"):
        match_names("Fc", NAMES, "pattern")


def test_class_names_are_one_text_each() -> None:
    assert check_class_names(["a", "", "a\n"], 3) == ("a", "", "a\n")
    for names in (
        ["a"],
        ["a", "b", "c"],
        "ab",
        ["a", 1],
        ["a", None],
        None,
        {"a": 1},
        ["a", "\0"],
        ["a", "\udcff"],
    ):
        with pytest.raises(
            ValueError, match=r"^class_names must be a list of 2 texts[^\n]*, got [^\n]*; [^\n]*$"
        ):
            check_class_names(names, 2)

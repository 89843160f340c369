"""Options that are derived from a dataclass."""

from dataclasses import dataclass
from typing import Literal

import pytest

from qat.cli.dataclass_options import add_options, take_options
from qat.cli.parser import OneLineParser


@dataclass(frozen=True)
class Recipe:
    """What to cook.

    Args:
        servings: People who eat.
        times: Minutes of each step,
            over two lines.
        heat: How it is cooked.
    """

    servings: int = 2
    times: tuple[int, ...] = (3, 4)
    heat: Literal["oven", "pan"] = "pan"

    def __post_init__(self) -> None:
        if self.servings < 1:
            raise ValueError("servings must be at least 1")


@pytest.fixture
def parser() -> OneLineParser:
    parser = OneLineParser(allow_abbrev=False)
    add_options(parser, Recipe)
    return parser


def test_defaults_and_values(parser: OneLineParser) -> None:
    assert take_options(Recipe, parser.parse_args([])) == Recipe(2, [3, 4], "pan")  # type: ignore[arg-type]
    given = parser.parse_args(["--servings", "4", "--times", "5", "6", "7", "--heat", "oven"])
    assert take_options(Recipe, given) == Recipe(4, [5, 6, 7], "oven")  # type: ignore[arg-type]


def test_help_comes_from_the_docstring(parser: OneLineParser) -> None:
    text = " ".join(parser.format_help().split())
    assert (
        "--times TIMES [TIMES ...] Minutes of each step, over two lines. (type: int, default: [3, 4])" in text
    )
    assert "--heat {oven,pan}" in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--servings", "many"], "error: servings must be an integer, got many\n"),
        (["--heat", "ovn"], "error: heat: unknown name 'ovn'; nearest: oven\n"),
        (["--time", "3"], "error: unknown option 'time'; nearest: times\n"),
    ],
)
def test_errors(
    argv: list[str], message: str, parser: OneLineParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(argv)
    assert capsys.readouterr().err == message


def test_the_rules_of_the_dataclass_apply(parser: OneLineParser) -> None:
    with pytest.raises(ValueError, match="servings must be at least 1"):
        take_options(Recipe, parser.parse_args(["--servings", "0"]))

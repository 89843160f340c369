"""How a verb is called, and the parser's errors."""

import sys
from importlib.metadata import version

import pytest

from qat.cli.parser import OneLineParser, command, program


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: sys.executable)


@pytest.mark.parametrize(
    ("argv", "words", "usage"),
    [
        (["/x/bin/qat", "train", "fit"], ["qat", "train"], "qat train"),
        ([r"C:\x\qat.exe", "tour"], ["python", "-m", "qat", "tour"], "python -m qat tour"),
        (["scripts/train.py", "fit"], ["python", "scripts/train.py"], "scripts/train.py"),
        (["/x/qat/__main__.py", "compare"], ["python", "-m", "qat", "compare"], "python -m qat compare"),
        (["/x/bin/pytest", "-q"], ["python", "-m", "qat"], "python -m qat"),
    ],
)
def test_the_way_it_was_called(
    argv: list[str], words: list[str], usage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert command() == words
    assert program() == usage == OneLineParser().prog


def test_a_program_of_another_name_goes_on_through_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["mine.py", "fit"])
    assert command("train") == ["python", "-m", "qat", "train"]


def test_another_python_than_that_of_the_path_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/elsewhere/python")
    monkeypatch.setattr(sys, "argv", ["scripts/train.py"])
    assert command() == [sys.executable, "scripts/train.py"]


def test_options_with_their_help() -> None:
    # `options` reads a private name of argparse. If this fails with a new release, look there.
    parser = OneLineParser()
    parser.add_argument("--bits", type=int, help="Of weights.")
    parser.add_argument("-r", "--rounds", type=int)
    found = parser.options()
    assert found.items() >= {"bits": "Of weights.", "rounds": ""}.items()
    assert version("jsonargparse").startswith("4.")


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = OneLineParser()
    parser.add_argument("--bits", type=int)
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(["--bit", "4"])
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", "error: unknown option 'bit'; nearest: bits\n")

"""The verb `check_gradients`: the table, and the check of a user-defined function."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from qat.cli.check_gradients import main, random_input
from qat.tour import ROWS

MINE = """
import torch

THREE = 3


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x


class Half(Square):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x


def root(x):
    return x.sqrt()


def product(x, y):
    return (x * y).sum()


def floor(x):
    return x + (x.floor() - x).detach()


def claim(g, x):
    return g
"""


@pytest.fixture(autouse=True)
def _beside_my_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_module.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "needs_more.py").write_text("import not_installed\n", encoding="utf-8")
    (tmp_path / "broken.py").write_text("def f(:\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("my_module", "needs_more"):
        sys.modules.pop(name, None)


def code(*argv: str) -> int | str | None:
    try:
        main(argv)
    except SystemExit as stop:
        return stop.code
    return 0


def test_the_whole_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ROWS.keys() - {"round_ste", "numpy_function"}:
        monkeypatch.delitem(ROWS, name)
    assert code() == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line[2:3].isalpha()}
    assert lines.keys() - {"function"} == ROWS.keys()
    assert lines["numpy_function"][-3:] == ["ok", "refused", "ok"]
    assert lines["round_ste"][-4:] == ["ok", "ok", "yes", "ok"]

    monkeypatch.setitem(ROWS, "round_ste", ROWS["round_ste"]._replace(surrogate=lambda g, x: 2 * g))
    assert code() == 1
    out = capsys.readouterr().out
    assert "FAILED" in out
    assert "stated / analytical = 2.00 everywhere: a factor is missing" in out


@pytest.mark.parametrize(
    ("argv", "exit_code", "shown"),
    [
        (["my_module:Square"], 0, "my_module:Square: ok (checked against finite differences)"),
        (["my_module.Square"], 0, "my_module.Square: ok (checked against finite differences)"),
        (["my_module:Half", "--shape", "5"], 1, "numerical / analytical = 2.00 everywhere"),
        (["my_module:root", "--low", "0.5", "--high", "3", "--seed", "1", "--shape", "()"], 0, "root: ok"),
        (["my_module:root"], 1, "FAILED"),
        (["my_module:product", "--shape", "4,3", "--shape", "3"], 0, "product: ok"),
        (["my_module:floor"], 1, "state it: surrogate="),
        (
            ["my_module:floor", "--surrogate", "my_module:claim"],
            0,
            "ok (checked against the stated surrogate)",
        ),
        (["my_module:product"], 1, "missing 1 required positional argument"),
    ],
)
def test_a_user_defined_function(
    argv: list[str], exit_code: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(*argv) == exit_code
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["my_modul:Square"],
            "there is no module my_modul here",
        ),
        (["needs_more:f"], "module needs_more cannot be imported: ModuleNotFoundError: "),
        (["my_module:Sqare"], "unknown name in my_module 'Sqare'; nearest: Square"),
        (["needs_more.f"], "No module named 'not_installed'"),
        (["my_module.Sqare"], "unknown name in my_module 'Sqare'; nearest: Square"),
        (["broken:f"], "module broken cannot be imported: "),
        (["Square"], "function must be an import path such as my_module.my_name, got 'Square'"),
        (["my_module:"], "function must be an import path"),
        (["my_module.py:Square"], "unknown name in my_module 'py'"),
        (["../my_module:Square"], "function must be an import path such as"),
        (["my_module:THREE"], "my_module:THREE must be a Function class or a callable, got int"),
        (
            ["my_module:Square", "--shape", "4x3"],
            "shape must be sizes with commas, as in 4,3, or (); got '4x3'",
        ),
        (["my_module:Square", "--shape", ""], "shape must be sizes with commas"),
        (["my_module:Square", "--low", "3"], "low must be < high, got 3.0 and 2.0"),
        (["my_module:Square", "--surrogate", "my_module:clam"], "unknown name in my_module 'clam'"),
        (["my_module:Square", "--sed", "3"], "unknown option 'sed'; nearest: seed"),
        (["my_module:Square", "--seed", "x"], "seed"),
    ],
)
def test_bad_input_is_one_line(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code(*argv) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_random_inputs_are_reproducible_and_within_their_range() -> None:
    first, second = (random_input(" 40, 3", 1.0, 2.0, torch.Generator().manual_seed(3)) for _ in range(2))
    assert first.shape == (40, 3)
    assert first.dtype == torch.float64
    assert torch.equal(first, second)
    assert 1 <= first.min() < 1.1 < 1.9 < first.max() < 2

"""The command `qat`: its table of verbs, its help, and what it says when it cannot start one."""

import io
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

import qat.cli
from qat.cli import VERBS, main

ROOT = Path(__file__).parents[2]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_each_verb(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(arguments)
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("usage: qat VERB ")
    assert [verb for verb in VERBS if f"\n  {verb} " not in out] == []
    assert max(map(len, out.splitlines())) <= 80


def test_help_imports_no_torch() -> None:
    code = "import sys; from qat.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert python("-c", code).returncode == 0


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_a_module_with_a_script(verb: str) -> None:
    assert callable(import_module(f"qat.cli.{verb}").main)
    lines = (ROOT / "scripts" / f"{verb}.py").read_text(encoding="utf-8").splitlines()
    assert lines[-1] == f'    main(["{verb}", *sys.argv[1:]])'
    assert any(line.startswith(f"python scripts/{verb}.py") for line in lines)


def test_an_unknown_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["trian"])
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", "error: unknown verb 'trian'; nearest: train\n")


def test_stopped_while_the_imports_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(qat.cli, "import_module", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(["train", "fit"])
    assert stop.value.code == 130
    assert capsys.readouterr() == ("", "stopped before the run began\n")


def test_as_a_module() -> None:
    run = python("-m", "qat", "xyz")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("error: unknown verb 'xyz'; choose from: train, ")


def test_train_fit_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["/usr/bin/qat", "train", "fit", "--help"])
    with pytest.raises(SystemExit) as stop:
        main(["train", "fit", "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: qat train fit [--config FILE]")
    ours = out[: out.index("--trainer.accelerator")]  # what follows is Lightning's
    assert max(map(len, ours.splitlines())) <= 80
    assert "SUPPRESS" not in ours


@pytest.mark.parametrize("encoding", ["gbk", "ascii"])
def test_a_terminal_of_another_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    main(["--help"])
    print("\N{BALLOT X}\u00e9")
    stream.flush()
    assert b"\\u2717" in stream.buffer.getvalue()


@pytest.mark.parametrize("form", [["--model.options", "{}"], ["--model.options={}"]])
def test_aliases_that_grow_are_refused_at_once(form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    links = [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in pairwise("abcdefgh")]
    bomb = "{a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1], " + ", ".join(links) + "}"
    with pytest.raises(SystemExit) as stop:
        main(["train", "fit", *(part.replace("{}", bomb) for part in form)])
    err = capsys.readouterr().err
    assert (stop.value.code, err.count("\n")) == (2, 1)
    assert "more than 100,000 values, aliases written out" in err

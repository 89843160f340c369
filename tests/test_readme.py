"""README stays true: its commands and its Python run, its links lead somewhere."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from qat.cli import main
from qat.measure import memory_study, startup
from qat.measure.growth import Growth

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = README + "".join(page.read_text("utf-8") for page in sorted((ROOT / "docs").glob("*.md")))


def blocks(language: str, text: str = PAGES) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(script: str) -> list[list[str]]:
    """Arguments of each call of a script in the shell blocks; a call that is shown twice counts once."""
    lines = "\n".join(blocks("sh")).replace("\\\n", " ").splitlines()
    calls = [shlex.split(line, comments=True) for line in lines if f"python scripts/{script}" in line]
    assert calls, f"README shows no call of {script}"
    arguments = [tuple(call[call.index(f"scripts/{script}") + 1 :]) for call in calls]
    return [list(call) for call in dict.fromkeys(arguments) if "--help" not in call]


@pytest.fixture
def beside_configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own, with the configs and the modules that the pages show."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for block in blocks("python"):
        if name := re.match(r"# (\w+)\.py\n", block):
            (tmp_path / f"{name[1]}.py").write_text(block, encoding="utf-8")
            monkeypatch.delitem(sys.modules, name[1], raising=False)
    return tmp_path


def test_the_page_on_your_own_parts_runs(beside_configs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in blocks("python", (ROOT / "docs" / "your_own.md").read_text("utf-8")):
        exec(compile(block, "your_own.md", "exec"), names)
    out = capsys.readouterr().out
    assert "FAILED" not in out
    assert "signal / noise" in out


def test_the_python_runs(beside_configs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks("python", README):
        exec(compile(block, "README.md", "exec"), {})
        assert int(capsys.readouterr().out.splitlines()[-1]) > 0


def test_compare_commands_run(beside_configs: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One epoch of one setup on tiny images: what is tested is that the options are right.
    monkeypatch.setenv("QAT_DATA", str(images))
    short = [
        "--data",
        "folder",
        "--epochs",
        "1",
        "--setups",
        "ste",
        "--seeds",
        "0",
        "--batch_size",
        "20",
        "--jobs",
        "1",
    ]
    for block in blocks("yaml"):
        name = re.match(r"# (\w+\.yaml)\n", block)
        if name:
            (beside_configs / name[1]).write_text(block, encoding="utf-8")
    for argv in commands("compare.py"):
        main(["compare", *argv, *short])
    assert (beside_configs / "runs" / "mine" / "report.html").is_file()


def test_train_commands_run_in_their_order(beside_configs: Path) -> None:
    step = ["--trainer.limit_train_batches", "1", "--trainer.limit_val_batches", "1"]
    for number, argv in enumerate(commands("train.py"), 1):
        epochs = (
            ["--trainer.max_epochs", str(number), *step]
            if argv[0] == "fit"
            else ["--trainer.limit_test_batches", "1"]
        )
        main(["train", *argv, *epochs, "--data.name", "mnist5k", "--trainer.enable_progress_bar", "false"])


def test_export_commands_run(beside_configs: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QAT_DATA", str(images))
    quick = ["--data.name", "folder", "--trainer.max_epochs", "1", "--trainer.enable_progress_bar", "false"]
    main(["train", "fit", "--config", "configs/mnist_w4a4_deployable.yaml", *quick])
    for argv in commands("export.py"):
        main(["export", *argv])
    assert {path.name for path in beside_configs.glob("model.*")} == {"model.onnx", "model.c", "model.npz"}


def test_the_gradient_scripts_run(beside_configs: Path) -> None:
    for verb in ("check_gradients", "tour"):
        for argv in commands(f"{verb}.py"):
            main([verb, *argv])  # leaves with 1 where a gradient or a figure is wrong
    assert (beside_configs / "tour.html").is_file()


def test_memory_commands_run(beside_configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tiny, and without the processes of its own for each mode.
    monkeypatch.setenv("QAT_COMPILE", "0")
    monkeypatch.setattr(memory_study, "growth", lambda _case, _name, size: Growth(size, size))
    tiny = ["--image", "3", "8", "8", "--batch", "4", "--rounds", "3"]
    for argv in commands("memory.py"):
        main(["memory", *argv, *tiny, *(["--depth", "1", "2"] if "--depth" in argv else [])])
    assert (beside_configs / "runs" / "memory" / "memory.json").is_file()


def test_the_benchmark_commands_run(beside_configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of the usual parts the quickest candidates; processes and compilers are tested where they are.
    monkeypatch.setenv("QAT_COMPILE", "0")
    monkeypatch.setattr(startup, "STARTUP_MODES", ())
    tiny = ["--rounds", "1", "--size", "2", "2", "5", "5", "--sizes", "5000", "--batch_size", "2"]
    for argv in commands("benchmark.py"):
        main(["benchmark", *argv, *tiny, "--only", "x *", "float"])
    written = {path.stem for path in (beside_configs / "runs" / "benchmark").glob("*.json")}
    assert written == {"ops", "scaling", "steps", "profile", "startup"}


def test_nothing_is_left_to_be_filled_in_and_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = page.read_text(encoding="utf-8")
        assert "@@" not in text, page.name
        links = re.findall(r"\]\(([^)#:]+)\)", text)
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name


def test_both_ways_without_make_are_shown() -> None:
    shell = "\n".join(blocks("sh", README))
    for command in ("make compare", "make test", 'pip install --editable ".[dev]"', "-m pytest"):
        assert command in shell


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 300

"""The command line of the memory study: one line for each error, before any work."""

from pathlib import Path

import pytest

from qat.cli import memory as cli
from qat.cli.memory import main
from qat.measure.memory_study import MemoryRow, MemoryStudy
from qat.measure.modes import MEMORY_MODES, PACKED_CHECKPOINTED, reference_of
from qat.measure.rounds import Timing
from qat.measure.workload import Workload


@pytest.fixture(autouse=True)
def _eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QAT_COMPILE", "0")


def small_study() -> MemoryStudy:
    """Equal numbers for all modes."""
    rows = {
        name: MemoryRow(10**6, Timing(name, seconds=[1.0, 1.0]), reference_of(name) and True, 10**6, 10**6)
        for name in MEMORY_MODES
    }
    return MemoryStudy(Workload(), rows, None, None, 1.0)


def left(capsys: pytest.CaptureFixture[str], code: int, *argv: str) -> tuple[str, str]:
    with pytest.raises(SystemExit) as leaving:
        main(list(argv))
    assert leaving.value.code == code
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    return out, err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--model", "resnet9"], "unknown model 'resnet9'; nearest: resnet8"),
        (["--batch", "1"], "batch must be at least 2"),
        (["--batch", "many"], "batch must be an integer, got many"),
        (["--bits", "9"], "bits must be one of the integers 1, 2, 3, 4, 5, 6, 7, 8, 16; got 9"),
        (["--scale", "lerned"], "scale: unknown name 'lerned'; nearest: learned"),
        (["--image", "3", "32"], "image must be channels, height and width"),
        (["--model", "lenet", "--image", "1", "8", "8"], "LeNet needs images of at least 12x12"),
        (["--checkpoint", "block.*"], "checkpoint pattern 'block.*' matches nothing; nearest: "),
        (["--rounds", "2"], "rounds must be at least 3, the first of which is not timed; got 2"),
        (["--depth", "8"], "depth must be two or more numbers of blocks, as in 8 16 32; got 8"),
        (["--budget", "much"], "budget must be a number of bytes, as in 2GB or 512MiB; got 'much'"),
        (["--budget", "2GB", "--batch", "3"], "batch must be at least 4 with a budget"),
        (["--device", "tpu"], "device: unknown name 'tpu'; nearest: cpu"),
        (["--depths", "3"], "unknown option 'depths'; nearest: depth"),
        (["--out", ""], "out must name a folder"),
    ],
)
def test_bad_input_is_one_line(
    argv: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "build_kernels", None)  # would fail if it were called
    out, err = left(capsys, 2, *argv)
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_a_difference_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = small_study()
    study.rows[PACKED_CHECKPOINTED].identical = False
    monkeypatch.setattr(cli, "run_study", lambda *_: study)
    out, err = left(capsys, 1, "--out", str(tmp_path))
    said = "error: these modes do not compute what their reference computes: qat, packed, checkpointed\n"
    assert err == said
    assert "NO" in out


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ChildProcessError("it ended"), "error: it ended\n"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
            "error: batch 128 does not fit",
        ),
    ],
)
def test_failures_during_the_work(
    error: Exception,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "run_study", fail)
    assert left(capsys, 2, "--out", str(tmp_path))[1].startswith(message)


def test_a_bug_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "run_study", lambda *_: int("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        main(["--out", str(tmp_path)])


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_study", stop)
    out = tmp_path / "out"
    assert left(capsys, 130, "--out", str(out)) == ("", "stopped; nothing is written\n")
    assert not out.exists()

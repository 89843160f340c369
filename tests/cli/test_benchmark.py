"""The command line: figures in files, errors in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from qat.cli import benchmark as cli
from qat.cli.benchmark import main
from qat.measure import ops, speed_parts
from qat.measure.modes import FLOAT, QAT

TINY = ["--size", "4", "4", "5", "5", "--sizes", "5000", "--batch_size", "4", "--rounds", "1"]
FEW = ["--only", ops.FLOOR, ops.OBSERVED, "Brevitas*", FLOAT, QAT]


@pytest.fixture(autouse=True)
def _without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QAT_COMPILE", "0")


def read(folder: Path, part: str) -> Any:
    return json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))


def test_the_default_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*TINY, *FEW, "--models", "small_cnn", "--out", str(tmp_path)])
    out, _ = capsys.readouterr()
    assert out.splitlines()[1] == "kernels: eager"
    assert out.splitlines()[-1] == f"written to {tmp_path}"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{part}.{kind}" for part in ("ops", "scaling", "steps") for kind in ("json", "md")}
    found = read(tmp_path, "ops")
    assert found["settings"]["size"] == [4, 4, 5, 5]
    assert found["machine"]["versions"]["qat"]
    floor, observed, *_ = found["results"]
    assert floor["name"] == ops.FLOOR
    assert observed["ratios"][ops.FLOOR] == observed["seconds"][0] / floor["seconds"][0]
    assert observed["path"] == "eager"
    assert read(tmp_path, "scaling")["results"]["5000"][0]["name"] == ops.FLOOR
    assert [row["name"] for row in read(tmp_path, "steps")["results"]["small_cnn"]][:2] == ["float", "qat"]


def test_one_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--profile", *TINY, "--models", "small_cnn", "--out", str(tmp_path)])
    (row, *_) = read(tmp_path, "profile")["results"]
    assert row["name"] == FLOAT
    assert row["seconds"]["quantizers"] == 0


def test_a_candidate_that_fails_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("not today")

    monkeypatch.setitem(speed_parts.PEERS, "torch.ao FX", (broken, None))
    with pytest.raises(SystemExit) as stop:
        main(["--steps", *TINY, "--only", "torch.ao FX", "--models", "small_cnn", "--out", str(tmp_path)])
    assert stop.value.code == 1
    assert "torch.ao FX: failed: RuntimeError: not today" in capsys.readouterr().out
    assert read(tmp_path, "steps")["results"]["small_cnn"][0]["error"] == "RuntimeError: not today"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "0"], "rounds must be at least 1, got 0"),
        (["--threads", "0"], "threads must be at least 1, got 0"),
        (
            ["--size", "4", "4", "0", "4"],
            "size must be four numbers of at least 1, N C H W; got [4, 4, 0, 4]",
        ),
        (["--sizes", "12"], "sizes must be multiples of 5000, got 12"),
        (["--models", "resnet9"], "unknown model 'resnet9'; nearest: resnet8, resnet20"),
        (["--device", "gpu"], "device: unknown name 'gpu'; nearest: cpu"),
        (["--batch_size", "1"], "batch_size must be at least 2, got 1"),
        (["--only", "qta*"], "only pattern 'qta*' matches nothing; "),
        (["--out", ""], "out must name a folder, got nothing; "),
        (["--step"], "unknown option 'step'; nearest: steps"),
    ],
)
def test_bad_input(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        main(["--device", "cuda"])
    assert stop.value.code == 2
    said = "error: device must be cpu, because torch finds no CUDA device; got cuda\n"
    assert capsys.readouterr().err == said


def test_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(speed_parts.PARTS, "scaling", stop)
    with pytest.raises(SystemExit) as left:
        main([*TINY, "--only", ops.PER_TENSOR, "--out", str(tmp_path)])
    assert left.value.code == 130
    said = f"stopped; 1 of 3 parts are finished and kept in {tmp_path}\n"
    assert capsys.readouterr().err.endswith(said)
    assert {path.name for path in tmp_path.iterdir()} == {"ops.json", "ops.md"}

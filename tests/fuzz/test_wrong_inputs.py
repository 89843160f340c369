"""Every verb answers a wrong input with one line and exit code 2, at once, and leaves nothing behind."""

import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from qat.cli import VERBS, main

SECONDS = 60  # for one call, on a busy machine
QUICK, ALL = 24, 1000
# Where a verb has accepted its input: what follows would be its work.
WORK = {
    "cli.lightning_cli": "TrainCLI.run",
    "experiment.compare": "claimed",
    "training.trained_run": "TrainedRun.test_set",
    "cli.export": "_size_table",
    "cli.memory": "check_study",
    "cli.benchmark": "describe",
    "cli.check_gradients": "check_gradient",
    "cli.tour": "run_tour",
}

spec = spec_from_file_location("wrong_inputs", Path(__file__).with_name("wrong_inputs.py"))
assert spec
assert spec.loader
wrong_inputs = module_from_spec(spec)
spec.loader.exec_module(wrong_inputs)


class Accepted(BaseException):
    """The work would begin."""


class Late(BaseException):
    """A call took too long."""


@contextmanager
def time_limit() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise Late

    if not hasattr(signal, "SIGALRM"):  # Windows
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of one batch: its config.yaml and its last.ckpt in one folder."""
    root = tmp_path_factory.mktemp("run")
    options = {
        "data.name": "folder",
        "data.data_root": images,
        "data.batch_size": 8,
        "model.options.width": 4,
    }
    options |= {f"trainer.{key}": value for key, value in {"max_epochs": 1, "limit_train_batches": 1}.items()}
    options |= {"trainer.enable_progress_bar": "false", "trainer.default_root_dir": root / "runs"}
    options |= {"trainer.accelerator": "cpu"}
    main(["train", "fit", *(word for key, value in options.items() for word in (f"--{key}", str(value)))])
    version = root / "runs" / "version_0"
    (version / "checkpoints" / "last.ckpt").rename(root / "last.ckpt")
    (version / "config.yaml").rename(root / "config.yaml")
    return root


def outcome(seed: int, run: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """How one command ended: `refused`, `accepted`, or what was wrong about it."""
    argv = wrong_inputs.Wrong(seed, run, images).command()
    before = {path for path in Path().rglob("*") if ".qat_cache" not in path.name}
    capsys.readouterr()
    try:
        with time_limit():
            main(argv)
        code: Any = 0
    except Accepted:
        return "accepted"
    except SystemExit as stop:
        code = stop.code
    except Late:
        return f"took more than {SECONDS} s: {argv}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}: {argv}"
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if not line.startswith(("Seed set to", "start: loaded"))]
    left = {path for path in Path().rglob("*") if ".qat_cache" not in path.name} - before
    if left:
        return f"left {left}: {argv}"
    if code == 2 and len(lines) == 1 and lines[0].startswith("error: "):
        return "refused"
    return "accepted" if code in (0, None) and "--help" in argv else f"code {code}, {lines[:3]}: {argv}"


def run_all(
    seeds: range, run: Path, images: Path, tmp_path: Path, patch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def work(*_: Any, **__: Any) -> None:
        raise Accepted

    for module, names in WORK.items():
        *owners, name = names.split(".")
        patch.setattr(reduce(getattr, owners, import_module(f"qat.{module}")), name, work)
    patch.setattr(sys, "argv", ["qat"])
    found_wrong, ends = [], Counter[str]()
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        patch.chdir(folder)
        how = outcome(seed, run, images, capsys)
        ends[how if how in ("refused", "accepted") else "wrong"] += 1
        if how not in ("refused", "accepted"):
            found_wrong.append(f"{seed}: {how[:600]}")
    with capsys.disabled():
        print(dict(ends))
    assert not found_wrong, "\n".join(found_wrong)
    assert ends["refused"] > len(seeds) / 3


def test_a_sample(
    run: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run_all(range(QUICK), run, images, tmp_path, monkeypatch, capsys)


@pytest.mark.slow
def test_many(run: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    run_all(range(QUICK, QUICK + ALL), run, images, tmp_path, monkeypatch, capsys)


def test_all_verbs_are_tried() -> None:
    assert wrong_inputs.OPTIONS.keys() == VERBS.keys()

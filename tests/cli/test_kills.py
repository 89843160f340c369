"""Runs that are killed at any moment: no file is damaged, no finished epoch is lost, and no bit differs."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qat.training.ckpt import read_ckpt
from qat.training.resuming import finished_epochs
from tests.cli.test_train_resume import differences

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")
EPOCHS = 4
OPTIONS = [
    *("--model.options.width", "2", "--model.options.dropout", "0.2", "--trainer.accelerator", "cpu"),
    *("--trainer.limit_train_batches", "3", "--trainer.limit_val_batches", "1", "--data.augment", "true"),
    *("--trainer.max_epochs", str(EPOCHS), "--trainer.val_check_interval", "2", "--data.batch_size", "16"),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
]
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, 0)  # 0: the disk is full
MOMENTS = {"batch": 3 * EPOCHS, "half": 2 * EPOCHS, "rename": 2 * EPOCHS, "renamed": 2 * EPOCHS}


class Trainings:
    """Trainings in one folder, each a fork of one process, and what they left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
        script = str(Path(__file__).with_name("killed_runs.py"))
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, script], env=environment, **pipes)

    def train(self, root: Path, at: tuple[str, float], number: int, tmpdir: str) -> tuple[int, str]:
        """Train, or go on from the last .ckpt file; the exit code and what stderr shows."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        root.mkdir(exist_ok=True)
        files = {name: str(root / f"{name}.txt") for name in ("out", "err", "done")}
        args = ["fit", *OPTIONS, "--trainer.default_root_dir", str(root)]
        last = newest(root)
        args += ["--ckpt_path", str(last)] if last else []
        plan = {"args": args, "at": at, "signal": int(number), "tmpdir": tmpdir, **files}
        self.process.stdin.write(json.dumps(plan) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        return code, Path(files["err"]).read_text()


def newest(root: Path) -> Path | None:
    """The last.ckpt that holds the most epochs."""
    found = list(root.glob("*/checkpoints/last.ckpt"))
    return max(found, key=lambda path: finished_epochs(read_ckpt("run", path)), default=None)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    started = Trainings(tmp_path_factory.mktemp("kills"))
    yield started
    started.process.communicate()


def kill_often(trainings: Trainings, count: int, seed: int) -> Counter[str]:
    """Kill `count` trainings, up to three times a run, and compare each finished run with one of no kills."""
    draw, kinds = random.Random(seed), Counter[str]()
    never = ("batch", 10**6)
    whole = trainings.folder / "whole"
    if not whole.exists():
        assert trainings.train(whole, never, 9, tempfile.gettempdir())[0] == 0
    elsewhere = "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()
    runs = kills = 0
    while kills < count:
        root, runs = trainings.folder / f"run{seed}_{runs}", runs + 1
        for _ in range(min(3, count - kills)):
            number, tmpdir = draw.choice(SIGNALS), draw.choice([tempfile.gettempdir(), elsewhere])
            event = draw.choice([*MOMENTS, "seconds"])
            at = draw.uniform(0.0, 2.0) if event == "seconds" else draw.randint(1, MOMENTS[event])
            code, err = trainings.train(root, (event, at), number, tmpdir)
            kills += code != 0
            kinds[f"{event}: {'full disk' if not number else signal.Signals(number).name}, {code}"] += 1
            for path in root.rglob("*.ckpt"):
                read_ckpt("run", path)  # raises for a damaged one
            done = (root / "done.txt").read_text().split() if (root / "done.txt").exists() else []
            last = newest(root)
            saved = finished_epochs(read_ckpt("run", last)) if last else 0
            assert saved >= len(set(done))
            if code == 0:
                break
            assert code in ({-9} if number == signal.SIGKILL else {2} if not number else {130}), (number, err)
            if code != -9:
                assert err.count("\n") == (err != ""), err  # none if it was killed before it began
            if saved == EPOCHS:
                break
        if newest(root) is None or finished_epochs(read_ckpt("run", newest(root) or "")) < EPOCHS:
            code, err = trainings.train(root, never, 9, elsewhere)
            assert code == 0, err
        a, b = (read_ckpt("run", newest(one) or "") for one in (whole, root))
        assert differences(a, b) == []
    print(f"{kills} kills in {runs} runs: no damaged file, no lost epoch, all bits equal")
    return kinds


@pytest.mark.slow
def test_a_hundred_kills(trainings: Trainings) -> None:
    for kind, count in sorted(kill_often(trainings, 100, seed=0).items()):
        print(count, kind)

"""Several runs at a time: equal to one after another, and nothing that one does reaches the others."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from qat.experiment import RunsFailedError, compare
from qat.experiment.jobs import shared_threads

COMPARE = Path(__file__).parents[2] / "scripts" / "compare.py"
KILLED = """
import os, signal
from multiprocessing import parent_process
from qat.models import SmallCNN

def Net(input_shape, classes):
    if parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    return SmallCNN(input_shape=input_shape, classes=classes)
"""


def without_seconds(path: Path) -> dict:
    result = json.loads(path.read_text())
    for epoch in result["epochs"]:
        del epoch["seconds"]
    return result


def test_several_at_a_time_equal_one_after_another_to_the_last_bit(tiny, tmp_path: Path) -> None:
    comparison = tiny(
        "zero", "checkpointed", "ste", equal=[["checkpointed", "ste"]], trainer={"max_epochs": 2}
    )
    compare(comparison, tmp_path / "one")
    compare(comparison, tmp_path / "two", jobs=2)
    paths = sorted((tmp_path / "one").glob("*/result.json"))
    assert len(paths) == 3
    for path in paths:
        other = tmp_path / "two" / path.parent.name
        assert without_seconds(path) == without_seconds(other / "result.json")
        assert (path.parent / "step_losses.json").read_bytes() == (other / "step_losses.json").read_bytes()


def test_one_that_fails_or_is_killed_leaves_the_others_going(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "killed_net.py").write_text(KILLED)
    monkeypatch.syspath_prepend(tmp_path)
    setups = {"killed": {"model.name": "killed_net.Net"}, "bad": {"model.learning_rate": 1e30}}
    with pytest.raises(RunsFailedError) as caught:
        compare(tiny("ste", setups=setups, seeds=[0, 1]), tmp_path / "out", jobs=2)
    reasons = sorted(caught.value.args)
    assert [reason.partition(": ")[0] for reason in reasons] == [
        *("bad, seed 0", "bad, seed 1"),
        *("killed, seed 0", "killed, seed 1"),
    ]
    assert "its process ended early (exit code -9)" in reasons[2]
    assert all("\n" not in reason for reason in reasons)
    kept = [path.parent.name[:9] for path in sorted((tmp_path / "out").glob("*/result.json"))]
    assert kept == ["ste-seed0", "ste-seed1"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGKILL, -9)],
)
def test_ctrl_c_and_a_kill_leave_no_process_and_keep_what_is_finished(
    images: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    config = tmp_path / "compare.yaml"
    config.write_text(
        f"data: {{name: folder, data_root: {images}, batch_size: 8}}\n"
        "setups: {ste: {}}\nsweep: {trainer.max_epochs: [1, 99998, 99999]}\n"
    )
    command = [
        sys.executable,
        str(COMPARE),
        "--config",
        str(config),
        "--jobs",
        "2",
        "--out",
        str(tmp_path / "o"),
    ]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_until(
            lambda: len(list((tmp_path / "o").glob("*/result.json"))) == 1 or parent.poll() is not None
        )
        processes = psutil.Process(parent.pid).children(recursive=True)
        assert len(processes) >= 3  # two runs and the server that forks them
        os.killpg(parent.pid, number) if number == signal.SIGINT else parent.kill()
        _, error = parent.communicate(timeout=60)
    finally:
        parent.kill()
    assert parent.returncode == code
    kept = "stopped; 1 of 3 runs are finished and kept: the same command goes on there\n"
    assert error == (kept if number == signal.SIGINT else "")  # no traceback of a run whose parent is gone
    wait_until(lambda: not any(process.is_running() for process in processes))
    assert len(list((tmp_path / "o").glob("*/result.json"))) == 1


def wait_until(condition) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("threads", "jobs", "expected"), [(8, 1, (1, 8)), (8, 3, (3, 2)), (2, 8, (8, 1)), (4, 0, (4, 1))]
)
def test_runs_share_the_threads(threads: int, jobs: int, expected: tuple[int, int]) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        with shared_threads(jobs) as number:
            assert (number, torch.get_num_threads()) == expected
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_jobs_are_not_negative(tiny, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs must be at least 1, or 0 for one on each thread; got -1"):
        compare(tiny("ste"), tmp_path / "out", jobs=-1)
    assert not (tmp_path / "out").exists()

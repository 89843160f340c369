"""Runs on the workers of a real Dask scheduler come back as the same files."""

import json
import socket
import time
from pathlib import Path

import pytest
from distributed import LocalCluster

from qat.experiment import RunsFailedError, compare
from qat.experiment.plan import FILES


@pytest.mark.slow
def test_runs_on_two_workers_equal_those_here_and_failures_are_named(tiny, tmp_path: Path) -> None:
    comparison = tiny("checkpointed", "ste", equal=[["checkpointed", "ste"]])
    bad = tiny("checkpointed", "ste", setups={"bad": {"model.learning_rate": 1e30}})
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with pytest.raises(RunsFailedError) as caught:
            compare(bad, tmp_path / "there", dask=cluster.scheduler_address)
        compare(comparison, tmp_path / "there", dask=cluster.scheduler_address)
    (reason,) = caught.value.args
    assert reason.startswith("bad, seed 0: ")
    assert "\n" not in reason
    compare(comparison, tmp_path / "here")
    for path in (tmp_path / "here").glob("*/result.json"):
        there = tmp_path / "there" / path.parent.name
        assert {each.name for each in there.iterdir()} == set(FILES)
        one, other = (json.loads(each.read_text()) for each in (path, there / "result.json"))
        assert one["digests"] == other["digests"]
        assert one["versions"] == other["versions"]
        assert one.get("difference") == other.get("difference")


def test_an_address_that_does_not_answer_is_refused_in_time(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qat.experiment.cluster.TIMEOUT", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(
            ValueError, match=rf"dask must be the address of a scheduler.*{address} did not ans"
        ):
            compare(tiny("ste"), tmp_path / "out", dask=address)
    assert time.monotonic() - began < 10
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("address", ["nonsense", ""])
def test_what_is_no_address_is_refused(tiny, tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match="dask must be the address of a scheduler"):
        compare(tiny("ste"), tmp_path / "out", dask=address)

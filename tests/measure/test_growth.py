"""The memory of a process, and its growth in training steps."""

import threading
from dataclasses import asdict

import pytest
import torch

from qat.measure import growth as module
from qat.measure.growth import growth, process_memory, train_and_watch, watched
from qat.measure.modes import PACKED, PACKED_CHECKPOINTED
from qat.measure.workload import Workload

SIZE = 64 * 2**20


def test_the_peak_includes_what_was_freed() -> None:
    before = process_memory("cpu")
    with watched("cpu") as peak:
        for _ in range(5):
            # ones writes the memory: what is only reserved is not resident.
            block = torch.ones(SIZE // 4)
            assert process_memory("cpu") - before > 0.9 * SIZE
            del block
    assert 0.9 * SIZE < peak() - before < 1.5 * SIZE


def test_the_watch_ends_with_an_error() -> None:
    threads = threading.active_count()
    with pytest.raises(ValueError, match="mine"), watched("cpu"):
        raise ValueError("mine")
    assert threading.active_count() == threads


@pytest.mark.slow
def test_a_fresh_process_holds_what_was_counted() -> None:
    # The caches of the process add a few MB, whatever the batch.
    workload = Workload("resnet8", batch=64)
    grown = growth(workload, PACKED, 64)
    counted = workload.train_step(PACKED).saved_bytes(workload.random_batch()[0])
    assert counted < grown.held < counted + 8e6
    assert grown.held < grown.peak < 3 * counted


def test_the_steps_of_the_process() -> None:
    grown = train_and_watch(asdict(Workload("resnet8", image=(3, 8, 8))), PACKED_CHECKPOINTED, 256)
    assert grown.peak > 0


def test_a_process_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ChildProcessError("MemoryError: much")

    monkeypatch.setattr(module, "call_in_fresh_process", fail)
    text = (
        "^the process that measures 'qat, packed' at batch 8 failed: MemoryError: much; try a smaller batch$"
    )
    with pytest.raises(ChildProcessError, match=text):
        growth(Workload("resnet8"), PACKED, 8)

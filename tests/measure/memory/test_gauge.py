"""Memory as it is seen from outside."""

import pytest
import torch

from qat.measure.memory.gauge import held, watched

SIZE = 64 * 2**20


def test_what_comes_and_goes_is_in_the_peak() -> None:
    before = held("cpu")
    with watched("cpu") as peak:
        for _ in range(5):
            # ones writes it: what is only reserved is not resident.
            block = torch.ones(SIZE // 4)
            assert held("cpu") - before > 0.9 * SIZE
            del block
    assert 0.9 * SIZE < peak.bytes - before < 1.5 * SIZE


def test_the_watch_ends_with_an_error() -> None:
    import threading

    threads = threading.active_count()
    with pytest.raises(ValueError, match="mine"), watched("cpu"):
        raise ValueError("mine")
    assert threading.active_count() == threads

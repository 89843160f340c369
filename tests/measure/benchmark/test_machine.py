"""The machine in words."""

import torch

from qat.measure.benchmark.machine import describe, in_words


def test_of_this_machine() -> None:
    machine = describe(torch.device("cpu"))
    assert machine["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert machine["threads"] == torch.get_num_threads()
    assert "cores" in in_words(machine)
    assert "\n" not in in_words(machine)


def test_what_is_not_there_is_not_said() -> None:
    machine = {"processor": "P", "cores": 2, "threads": 1, "device": "cpu", "load": None}
    machine |= {"versions": {"torch": "2.14.1", "brevitas": None}}
    assert in_words(machine) == "P, 2 cores, 1 threads; torch 2.14.1"
    assert (
        in_words(machine | {"load": 0.25, "device": "G"})
        == "G, P, 2 cores, 1 threads, load 0.2; torch 2.14.1"
    )

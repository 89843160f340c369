"""The machine in words."""

import torch

from qat.measure.machine import describe, in_words


def test_this_machine() -> None:
    machine = describe("cpu")
    assert machine["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert machine["threads"] == torch.get_num_threads()
    assert "cores" in in_words(machine)
    assert "\n" not in in_words(machine)


def test_unknown_values_are_left_out() -> None:
    machine = {"processor": "P", "cores": 2, "threads": 1, "device": "cpu", "load": None}
    machine |= {"versions": {"torch": "2.14.1", "brevitas": None}}
    assert in_words(machine) == "P, 2 cores, 1 threads; torch 2.14.1"
    assert (
        in_words(machine | {"load": 0.25, "device": "G"})
        == "G, P, 2 cores, 1 threads, load 0.2; torch 2.14.1"
    )

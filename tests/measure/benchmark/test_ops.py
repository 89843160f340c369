"""Every fake-quantizer that is timed runs, and is the one that it says."""

from importlib.util import find_spec

import pytest
import torch

from qat.measure.benchmark import ops, peer_brevitas, scaling
from qat.measure.benchmark.rounds import measure

CPU = torch.device("cpu")
SHAPE = (8, 4, 5, 5)


def test_all_run() -> None:
    candidates = ops.candidates(SHAPE, CPU)
    timings = measure(candidates, 1, CPU, lambda text: None)
    assert [timing.error for timing in timings] == [""] * len(timings)
    for candidate, timing in zip(candidates, timings, strict=True):
        absent = candidate.package is not None and find_spec(candidate.package) is None
        assert len(timing.seconds) == (not absent), timing.name
        assert bool(timing.path) == timing.name.startswith("qat")
    assert len({candidate.name for candidate in candidates}) == len(candidates)
    assert {ops.FLOOR, *ops.REFERENCES} <= {candidate.name for candidate in candidates}


@pytest.mark.parametrize("name", ["qat, fixed", "torch, per tensor", "torch.ao, observed"])
def test_the_same_gradient(name: str) -> None:
    # Their scales are the maximum over 7: nothing is clipped, and the gradient passes everywhere.
    candidate = next(c for c in ops.candidates(SHAPE, CPU) if c.name == name)
    (of_x,) = candidate.build().call()
    assert torch.equal(of_x, ops.numbers(SHAPE, CPU)[1])


@pytest.mark.parametrize("name", [ops.LEARNED, f"{ops.LEARNED}, QAT_COMPILE=0", "torch.ao, learned"])
def test_a_learned_scale_gets_its_gradient(name: str) -> None:
    candidate = next(c for c in ops.candidates(SHAPE, CPU) if c.name == name)
    _, *others = candidate.build().call()
    assert others[0].abs().sum() > 0


@pytest.mark.skipif(find_spec("brevitas") is None, reason="brevitas is not installed: extra bench")
def test_brevitas_learns_its_scale_after_one_batch() -> None:
    x, g = ops.numbers(SHAPE, CPU)
    learned, _ = peer_brevitas.quantizers(x, g, 4)
    call = learned.build().call
    call()
    _, of_scale = call()
    assert of_scale.abs().sum() > 0


def test_sizes() -> None:
    names = [candidate.name for candidate in scaling.candidates(scaling.UNIT, CPU)]
    assert tuple(names) == scaling.NAMES
    assert all(size % scaling.UNIT == 0 for size in scaling.SIZES)
    assert scaling.too_large(scaling.UNIT, CPU) == ""
    assert scaling.too_large(10**15, CPU).startswith(
        "1,000,000,000,000,000 elements need about 48000000.0 GB"
    )

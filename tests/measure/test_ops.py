"""Every fake-quantizer that is timed runs, and is the one that it says."""

from importlib.util import find_spec

import pytest
import torch

from qat.measure import ops, peer_brevitas
from qat.measure.rounds import measure
from qat.measure.speed_parts import SpeedOptions

SHAPE = (8, 4, 5, 5)


def test_all_run() -> None:
    candidates = ops.op_candidates(SHAPE, "cpu")
    timings = measure("ops", candidates, 1, "cpu")
    assert [timing.error for timing in timings] == [""] * len(timings)
    for candidate, timing in zip(candidates, timings, strict=True):
        absent = candidate.package is not None and find_spec(candidate.package) is None
        assert len(timing.seconds) == (not absent), timing.name
        assert bool(timing.path) == timing.name.startswith("qat")
    assert len({candidate.name for candidate in candidates}) == len(candidates)
    assert {ops.FLOOR, *ops.OP_REFERENCES} <= {candidate.name for candidate in candidates}


@pytest.mark.parametrize("name", ["qat, fixed", "torch, per tensor", "torch.ao, observed"])
def test_the_same_gradient(name: str) -> None:
    # Their scales are the maximum over 7: nothing is clipped, and the gradient passes everywhere.
    candidate = next(c for c in ops.op_candidates(SHAPE, "cpu") if c.name == name)
    (of_x,) = candidate.build().call()
    assert torch.equal(of_x, ops.random_operands(SHAPE, "cpu")[1])


@pytest.mark.parametrize("name", [ops.LEARNED, f"{ops.LEARNED}, QAT_COMPILE=0", "torch.ao, learned"])
def test_a_learned_scale_gets_its_gradient(name: str) -> None:
    candidate = next(c for c in ops.op_candidates(SHAPE, "cpu") if c.name == name)
    _, *others = candidate.build().call()
    assert others[0].abs().sum() > 0


@pytest.mark.skipif(find_spec("brevitas") is None, reason="brevitas is not installed: extra bench")
def test_brevitas_learns_its_scale_after_one_batch() -> None:
    x, g = ops.random_operands(SHAPE, "cpu")
    quantizer = peer_brevitas.quantizers(x, 4)["Brevitas, learned"]()
    quantizer(x)
    _, of_scale = torch.autograd.grad(quantizer(x.requires_grad_()), [x, *quantizer.parameters()], g)
    assert of_scale.abs().sum() > 0


def test_sizes() -> None:
    names = [candidate.name for candidate in ops.scaling_candidates(ops.UNIT, "cpu")]
    assert tuple(names) == ops.SCALING
    assert all(size % ops.UNIT == 0 for size in SpeedOptions().sizes)
    assert ops.too_large(ops.UNIT, "cpu") == ""
    assert ops.too_large(10**15, "cpu").startswith("1,000,000,000,000,000 elements need about 48000000.0 GB")


def test_torch_ao_has_no_public_module_with_a_learned_scale() -> None:
    # peer_torch_ao.py imports a private one; checked with this version of torch.
    from torch.ao import quantization

    assert torch.__version__.startswith("2.14."), "check whether torch.ao has a public module now"
    assert [name for name in dir(quantization) if "learn" in name.lower() and name[0] != "_"] == []

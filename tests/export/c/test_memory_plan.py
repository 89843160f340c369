"""No code is overwritten while it a later step still reads it."""

from math import prod
from typing import Any

import pytest

from qat.export import IntegerModel
from qat.export.c.memory_plan import plan_memory


@pytest.mark.parametrize("name", ["small_cnn", "resnet8", "lenet"])
def test_what_is_alive_does_not_overlap(name: str, trained: Any) -> None:
    model, images = trained(name, deployable=True)
    steps = IntegerModel(model, tuple(images.shape[1:])).program.steps
    found, arena = plan_memory(steps)

    def sources(number: int) -> set[int]:
        """The stored codes that a step reads, through sums and flattening."""
        direct = {n for n in steps[number].inputs if n in found}
        through = [sources(n) for n in steps[number].inputs if n not in found]
        return direct.union(*through)

    bytes_of = {n: set(range(p.start, p.start + p.bytes)) for n, p in found.items()}
    for number in found:
        alive = {m for later in range(number, len(steps)) for m in sources(later) if m < number}
        assert all(bytes_of[number].isdisjoint(bytes_of[m]) for m in alive)
    assert arena < sum(prod(steps[n].shape) for n in found)
    assert arena == max(p.start + p.bytes for p in found.values())

"""No code is overwritten while a later step still reads it."""

from math import prod
from typing import Any

import pytest

from qat.export import IntegerModel
from qat.export.c.memory_plan import plan_memory


@pytest.mark.parametrize("name", ["small_cnn", "resnet8", "lenet"])
def test_what_is_alive_does_not_overlap(name: str, trained: Any) -> None:
    model, images = trained(name, deployable=True)
    steps = IntegerModel(model, tuple(images.shape[1:])).program.steps
    places, wide = plan_memory(steps)

    def sources(number: int) -> set[int]:
        """The stored codes that a step reads, through sums and flattening."""
        direct = {n for n in steps[number].inputs if n in places}
        through = [sources(n) for n in steps[number].inputs if n not in places]
        return direct.union(*through)

    bytes_of = {n: set(place) for n, place in places.items()}
    for number in places:
        alive = {m for later in range(number, len(steps)) for m in sources(later) if m < number}
        assert all(bytes_of[number].isdisjoint(bytes_of[m]) for m in alive)
    assert wide == {}
    assert [len(place) for place in places.values()] == [prod(steps[n].shape) for n in places]
    assert max(place.stop for place in places.values()) < sum(len(place) for place in places.values())

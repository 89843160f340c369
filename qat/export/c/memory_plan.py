"""The RAM of a network in C: an arena in which codes that no later step reads are overwritten."""

from dataclasses import dataclass
from math import prod

from qat.export.integers.program import Step

STORING = ("rescale", "max_pool")  # the steps that store codes; sums are computed where they are rescaled


@dataclass(frozen=True)
class Place:
    """The place of one step's codes."""

    start: int  # the first byte in the arena; 0 if `is_wide`
    bytes: int
    is_wide: bool  # whether the codes are 32-bit integers in a separate array


def plan_memory(steps: list[Step]) -> tuple[dict[int, Place], int]:
    """The place of each step that stores codes, and the bytes of the arena."""
    stored = [n for n, step in enumerate(steps[:-1]) if step.op in STORING]
    last = {n: _last_reader(n, steps) for n in stored}
    found: dict[int, Place] = {}
    for n in stored:
        size = prod(steps[n].shape)
        if _is_wide(n, steps):
            found[n] = Place(0, 4 * size, True)
        else:
            alive = [found[m] for m in found if last[m] >= n and not found[m].is_wide]
            found[n] = Place(_first_gap(size, alive), size, False)
    arena = max((place.start + place.bytes for place in found.values() if not place.is_wide), default=0)
    return found, arena


def row_slots(steps: list[Step]) -> dict[int, int]:
    """The buffer that holds a row of weights of each convolution. Those in one rescaling have one each."""
    found: dict[int, int] = {}
    for n, step in enumerate(steps):
        if step.op == "conv":
            readers = [reader for reader in steps if reader.op == "rescale" and n in reader.inputs]
            taken = {found[i] for reader in readers for i in reader.inputs if i in found}
            found[n] = next(slot for slot in range(len(taken) + 1) if slot not in taken)
    return found


def _last_reader(number: int, steps: list[Step]) -> int:
    """The last step that stores something computed from these codes."""
    readers = [n for n, step in enumerate(steps) if number in step.inputs]
    return max((n if steps[n].op in STORING else _last_reader(n, steps) for n in readers), default=0)


def _is_wide(number: int, steps: list[Step]) -> bool:
    step = steps[number]
    if step.op == "max_pool":
        return _is_wide(step.inputs[0], steps) if step.inputs[0] else False
    return step.op == "rescale" and step.settings["high"] - step.settings["low"] > 255


def _first_gap(size: int, alive: list[Place]) -> int:
    start = 0
    for place in sorted(alive, key=lambda place: place.start):
        if place.start - start >= size:
            break
        start = max(start, place.start + place.bytes)
    return start

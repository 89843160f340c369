"""Where the codes of a network lie in RAM: one arena, in which what is no longer read is overwritten."""

from dataclasses import dataclass
from math import prod

from qat.export.integers.program import Step


@dataclass(frozen=True)
class Place:
    """Where the codes of one step lie.

    Args:
        start: the first byte in the arena; of no meaning where `is_wide`.
        bytes: how many.
        is_wide: whether they are 32-bit integers, in an array of their own.
    """

    start: int
    bytes: int
    is_wide: bool


def places(steps: list[Step]) -> tuple[dict[int, Place], int]:
    """The place of each step that stores codes, and the bytes of the arena.

    Sums are not stored: they are computed where they are rescaled. A step's codes may go where others lay
    that no later step reads.
    """
    stored = [n for n, step in enumerate(steps[:-1]) if step.op in ("rescale", "max_pool")]
    last = {n: _last_read(n, steps) for n in stored}
    found: dict[int, Place] = {}
    for n in stored:
        size, is_wide = prod(steps[n].shape), _is_wide(n, steps)
        if is_wide:
            found[n] = Place(0, 4 * size, True)
            continue
        alive = [found[m] for m in found if last[m] >= n and not found[m].is_wide]
        found[n] = Place(_first_gap(size, alive), size, False)
    arena = max((place.start + place.bytes for place in found.values() if not place.is_wide), default=0)
    return found, arena


def row_slots(steps: list[Step]) -> dict[int, int]:
    """Which buffer holds a row of weights of each convolution: those that share a rescaling have one each."""
    found: dict[int, int] = {}
    for n, step in enumerate(steps):
        if step.op == "conv":
            together = {
                i for reader in steps if reader.op == "rescale" and n in reader.inputs for i in reader.inputs
            }
            taken = {found[i] for i in together if i in found}
            found[n] = next(slot for slot in range(len(taken) + 1) if slot not in taken)
    return found


def _last_read(number: int, steps: list[Step]) -> int:
    """The last step that stores something computed from these codes."""
    readers = [n for n, step in enumerate(steps) if number in step.inputs]
    return max(
        (n if steps[n].op in ("rescale", "max_pool") else _last_read(n, steps) for n in readers), default=0
    )


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

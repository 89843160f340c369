"""The RAM of a network in C: an arena in which codes that no later step reads are overwritten."""

from math import prod

from qat.export.integers.program import Step

STORING = ("rescale", "max_pool")  # the steps that store codes; sums are computed where they are rescaled


def plan_memory(steps: list[Step]) -> tuple[dict[int, range], dict[int, int]]:
    """The bytes of the arena that hold the codes of each step, by number; the last step stores none.

    Steps whose codes need 32 bits have separate arrays instead; the second dict holds their lengths.
    """
    places, wide = dict[int, range](), dict[int, int]()
    for n, step in enumerate(steps[:-1]):
        if step.op not in STORING:
            continue
        if step.op == "max_pool":
            is_wide = step.inputs[0] in wide
        else:
            is_wide = step.settings["high"] - step.settings["low"] > 255
        if is_wide:
            wide[n] = prod(step.shape)
        else:
            alive = [place for m, place in places.items() if _last_reader(m, steps) >= n]
            places[n] = _first_gap(prod(step.shape), alive)
    return places, wide


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


def _first_gap(size: int, alive: list[range]) -> range:
    start = 0
    for place in sorted(alive, key=lambda place: place.start):
        if place.start - start >= size:
            break
        start = max(start, place.stop)
    return range(start, start + size)

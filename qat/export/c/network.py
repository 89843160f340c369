"""What the template `network.c` knows of a network beside its steps."""

from dataclasses import dataclass
from math import prod

from qat.export.c.memory_plan import plan_memory, row_slots
from qat.export.c.text import c_string
from qat.export.integers.program import Program, Step

POINTER = 4  # bytes, on a chip of 32 bits


@dataclass(frozen=True)
class Constant:
    """The numbers of a rescaling for each channel: an array, or one number if all channels share it."""

    name: str  # of the array
    type: str  # in C
    values: list[int]  # one number for each channel

    @property
    def is_array(self) -> bool:
        return len(set(self.values)) > 1

    @property
    def bytes(self) -> int:
        return len(self.values) * (1 if self.type == "uint8_t" else 4) if self.is_array else 0

    def __str__(self) -> str:
        return f"{self.name}[c]" if self.is_array else str(self.values[0])


@dataclass(frozen=True)
class StoredCodes:
    """An array that holds the codes of a step."""

    array: str
    lowest: int  # the code that is stored as 0
    is_wide: bool  # whether they are 32-bit integers


class Network:
    """The variables of the template; a step is meant by its number. The sizes are those of `CSource`."""

    def __init__(self, program: Program, pixels: list[int], class_names: tuple[str, ...] = ()) -> None:
        """`pixels`: the code of each pixel byte, minus the lowest code of the input."""
        self.table = [] if pixels == list(range(256)) else pixels
        self.class_names = [c_string(name) for name in class_names]
        self.program, self.steps = program, program.steps
        self.places, self.wide = plan_memory(self.steps)
        self.arena = max((place.stop for place in self.places.values()), default=0)
        self.slots, rows = row_slots(self.steps), dict[int, int]()
        for number, slot in self.slots.items():
            rows[slot] = max(prod(self.steps[number].settings["shape"][1:]), rows.get(slot, 0))
        self.rows = sorted(rows.items())
        self.stored = self._stored_codes()
        self.constants = {n: self._constants(n) for n, s in enumerate(self.steps) if s.op == "rescale"}
        self.titles = [self._title(step) for step in self.steps]
        self.divides = any(step.settings.get("divisor", 1) > 1 for step in self.steps)
        # `code_at` may read one byte behind a weight.
        self.weights = sum(len(step.packed_weight) + 1 for step in self.steps if step.op == "conv")
        names = sum(POINTER + len(name.encode()) + 1 for name in class_names)
        self.flash = (
            names
            + len(self.table)
            + self.weights
            + sum(c.bytes for constants in self.constants.values() for c in constants)
        )
        self.ram = self.arena + 4 * sum(self.wide.values()) + sum(rows.values())

    def _title(self, step: Step) -> str:
        """What a step computes, by the names of layers with weights: others may be functions, without one."""
        if step.op == "conv":
            return step.layer
        if step.op != "rescale":
            return {"max_pool": "max-pool", "sum_pool": "the sums of an average pool"}.get(step.op, step.op)
        of = [self.steps[n].layer if self.steps[n].op == "conv" else f"step {n}" for n in step.inputs]
        return f"{'the logits' if step is self.steps[-1] else 'codes'} of {' + '.join(of)}"

    def _stored_codes(self) -> dict[int, StoredCodes]:
        found: dict[int, StoredCodes] = {}
        for n, step in enumerate(self.steps):
            low = step.settings.get("low", 0)
            if n == 0:
                found[n] = StoredCodes("input_codes", low, False)
            elif n == len(self.steps) - 1:
                found[n] = StoredCodes("logits", 0, True)
            elif step.op == "flatten":  # it leaves them in place
                found[n] = found[step.inputs[0]]
            elif n in self.wide:
                found[n] = StoredCodes(f"wide{n}", 0, True)
            elif n in self.places:
                found[n] = StoredCodes(f"(arena + {self.places[n].start})", low, False)
        return found

    def _constants(self, number: int) -> list[Constant]:
        """The multipliers of a rescaling, its bias and its shift."""
        multiplier, bias, shift = (array.tolist() for array in self.steps[number].arrays.values())
        factors = [Constant(f"multiplier{number}_{i}", "int32_t", row) for i, row in enumerate(multiplier)]
        return [
            *factors,
            Constant(f"bias{number}", "int32_t", bias),
            Constant(f"shift{number}", "uint8_t", shift),
        ]

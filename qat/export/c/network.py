"""What the template `network.c` knows of a network beside its steps."""

from dataclasses import dataclass
from math import prod
from typing import Any

from qat.export.c.memory_plan import plan_memory, row_slots
from qat.export.integers import Program


@dataclass(frozen=True)
class Constant:
    """The numbers of a rescaling for each channel: an array, or one number if all channels share it.

    Args:
        name: name of the array.
        type: its C type.
        values: one number for each channel.
    """

    name: str
    type: str
    values: list[int]

    @property
    def is_array(self) -> bool:
        return len(set(self.values)) > 1

    @property
    def bytes(self) -> int:
        return len(self.values) * (1 if self.type == "uint8_t" else 4) if self.is_array else 0

    def __str__(self) -> str:
        return f"{self.name}[c]" if self.is_array else str(self.values[0])


class Network:
    """The variables and functions of the template; a step is meant by its number.

    Args:
        program: the network.

    Attributes:
        flash: bytes of constants.
        weights: bytes of weights among them.
        ram: bytes of static variables.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.places, self.arena = plan_memory(program.steps)
        self.wide = [(number, place.bytes // 4) for number, place in self.places.items() if place.is_wide]
        self.slots, rows = row_slots(program.steps), dict[int, int]()
        for number, slot in self.slots.items():
            rows[slot] = max(prod(program.steps[number].settings["shape"][1:]), rows.get(slot, 0))
        self.rows = sorted(rows.items())
        self.constants = {n: self._constants(n) for n, s in enumerate(program.steps) if s.op == "rescale"}
        # `code_at` may read one byte behind a weight.
        self.weights = sum(len(step.packed_weight) + 1 for step in program.steps if step.op == "conv")
        self.flash = self.weights + sum(c.bytes for constants in self.constants.values() for c in constants)
        self.ram = self.arena + 4 * sum(size for _, size in self.wide) + sum(rows.values())

    def variables(self) -> dict[str, Any]:
        """Everything that the template uses."""
        steps = self.program.steps
        return vars(self) | {
            "steps": steps,
            "divides": any(step.settings.get("divisor", 1) > 1 for step in steps),
            "is_wide": self.is_wide,
            "lowest": self.lowest,
            "stored": self.stored,
        }

    def is_wide(self, number: int) -> bool:
        """Whether a step gives 32-bit integers."""
        number = self._origin(number)
        return number == len(self.program.steps) - 1 or (number > 0 and self.places[number].is_wide)

    def lowest(self, number: int) -> int:
        """The code that is stored as 0."""
        return 0 if self.is_wide(number) else int(self.program.steps[self._origin(number)].settings["low"])

    def stored(self, number: int) -> str:
        """The array in which the codes of a step lie."""
        number = self._origin(number)
        if number == len(self.program.steps) - 1:
            return "logits"
        if number == 0:
            return "input_codes"
        return f"wide{number}" if self.is_wide(number) else f"(arena + {self.places[number].start})"

    def _origin(self, number: int) -> int:
        """The step that stored the codes: flattening leaves them in place."""
        while self.program.steps[number].op == "flatten":
            (number,) = self.program.steps[number].inputs
        return number

    def _constants(self, number: int) -> list[Constant]:
        """The multipliers of a rescaling, its bias and its shift."""
        multiplier, bias, shift = (array.tolist() for array in self.program.steps[number].arrays.values())
        factors = [Constant(f"multiplier{number}_{i}", "int32_t", row) for i, row in enumerate(multiplier)]
        return [
            *factors,
            Constant(f"bias{number}", "int32_t", bias),
            Constant(f"shift{number}", "uint8_t", shift),
        ]

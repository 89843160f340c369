"""The steps of a network as the template `network.c` prints them."""

from dataclasses import dataclass
from math import prod
from typing import Any

from qat.export.c.memory_plan import plan_memory, row_slots
from qat.export.integers import Program, Step, packed_weight


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


class StepView:
    """One step with the C expressions that depend on other steps.

    Args:
        network: the network that the step belongs to.
        number: index of the step.
    """

    def __init__(self, network: "NetworkView", number: int) -> None:
        self.network, self.number = network, number
        step: Step = network.program.steps[number]
        self.op, self.layer, self.inputs, self.shape = step.op, step.layer, step.inputs, step.shape
        self.settings = step.settings
        self.weight = packed_weight(step) if self.op == "conv" else b""
        self.row_length = prod(self.settings["shape"][1:]) if self.op == "conv" else 0
        self.constants = _constants(number, step) if self.op == "rescale" else []

    @property
    def source(self) -> "StepView":
        """The step whose codes it reads."""
        return self.network.steps[self.inputs[0]]

    @property
    def is_last(self) -> bool:
        return self.number == len(self.network.program.steps) - 1

    @property
    def is_wide(self) -> bool:
        """Whether it stores 32-bit integers."""
        if self.is_last:
            return True
        place = self.network.places.get(self._origin.number)
        return place is not None and place.is_wide

    @property
    def stored(self) -> str:
        """The array in which its codes lie."""
        number = self._origin.number
        if self.is_last or number == 0:
            return "logits" if self.is_last else "input_codes"
        return f"wide{number}" if self.is_wide else f"(arena + {self.network.places[number].start})"

    @property
    def lowest(self) -> int:
        """The code that is stored as 0."""
        return 0 if self.is_wide else int(self._origin.settings["low"])

    @property
    def _origin(self) -> "StepView":
        """The step that stored its codes: flattening leaves them in place."""
        return self.source._origin if self.op == "flatten" else self

    @property
    def slot(self) -> int:
        """The buffer that holds a row of a convolution's weights."""
        return self.network.slots[self.number]

    @property
    def loads(self) -> list[int]:
        """The convolutions whose row of weights a rescaling loads for each channel."""
        return [n for n in self.inputs if self.network.steps[n].op == "conv"]

    @property
    def terms(self) -> list[tuple["StepView", int, Constant]]:
        """What a rescaling adds: a step, its zero point and its multiplier."""
        sources, factors = [self.network.steps[n] for n in self.inputs], self.constants[:-2]
        return list(zip(sources, self.settings["zeros"], factors, strict=True))


def _constants(number: int, step: Step) -> list[Constant]:
    """The multipliers of a rescaling, its bias and its shift."""
    multiplier, bias, shift = step.arrays.values()
    factors = [(f"multiplier{number}_{i}", "int32_t", values) for i, values in enumerate(multiplier)]
    others = [(f"bias{number}", "int32_t", bias), (f"shift{number}", "uint8_t", shift)]
    return [Constant(name, kind, values.tolist()) for name, kind, values in factors + others]


class NetworkView:
    """A network as the template prints it, with its bytes of flash and RAM.

    Args:
        program: the steps of the network.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.places, self.arena = plan_memory(program.steps)
        self.slots = row_slots(program.steps)
        self.steps = [StepView(self, number) for number in range(len(program.steps))]
        convs = [step for step in self.steps if step.op == "conv"]
        lengths = {slot: [c.row_length for c in convs if c.slot == slot] for slot in set(self.slots.values())}
        self.rows = sorted((slot, max(length)) for slot, length in lengths.items())
        self.wide = [(number, place.bytes // 4) for number, place in self.places.items() if place.is_wide]
        self.weights = sum(len(conv.weight) + 1 for conv in convs)  # `code_at` may read one byte more
        self.flash = self.weights + sum(c.bytes for step in self.steps for c in step.constants)
        self.ram = (
            self.arena + 4 * sum(size for _, size in self.wide) + sum(length for _, length in self.rows)
        )

    def variables(self) -> dict[str, Any]:
        """The variables of the template."""
        first, last = self.steps[0], self.steps[-1]
        source = {
            "size": prod(first.shape),
            "shape": " x ".join(map(str, first.shape)),
            "scale": repr(self.program.input_scale),
            "low": first.settings["low"],
            "high": first.settings["high"],
        }
        return vars(self) | {
            "input": source,
            "classes": last.shape[0],
            "output_scale": repr(self.program.output_scale),
            "divides": any(step.settings.get("divisor", 1) > 1 for step in self.steps),
        }

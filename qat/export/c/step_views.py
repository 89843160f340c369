"""The steps of a network as the template `network.c` prints them."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from qat.export.c.memory_plan import plan_memory, row_slots
from qat.export.integers import IntArray, Program, Step, packed_weight


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
        self.settings, self.arrays = step.settings, step.arrays
        self.weight = packed_weight(step) if self.op == "conv" else b""
        self.row_length = prod(self.settings["shape"][1:]) if self.op == "conv" else 0

    @property
    def source(self) -> "StepView":
        """The step whose codes it reads."""
        return self.network.steps[self.inputs[0]]

    @property
    def is_last(self) -> bool:
        return self.number == len(self.network.program.steps) - 1

    @property
    def is_wide(self) -> bool:
        """Whether its codes are stored as 32-bit integers."""
        place = self.network.places.get(self._origin.number)
        return place is not None and place.is_wide

    @property
    def stored(self) -> str:
        """The array in which its codes lie."""
        number = self._origin.number
        if number == 0:
            return "input_codes"
        return f"wide{number}" if self.is_wide else f"(arena + {self.network.places[number].start})"

    @property
    def target(self) -> str:
        """The element that it writes."""
        _, height, width = self.shape
        return f"{'logits' if self.is_last else self.stored}[(c * {height} + y) * {width} + x]"

    def code(self, channel: str, row: str, column: str, zero: int) -> str:
        """One of its codes minus a zero point."""
        _, height, width = self.shape
        element = f"{self.stored}[(({channel}) * {height} + {row}) * {width} + {column}]"
        offset = (0 if self.is_wide else self._origin.settings["low"]) - zero
        return f"({element} {'+' if offset > 0 else '-'} {abs(offset)})" if offset else element

    @property
    def _origin(self) -> "StepView":
        """The step that stored its codes: flattening leaves them in place."""
        return self.source._origin if self.op == "flatten" else self

    # Convolutions

    @property
    def slot(self) -> int:
        """Number of the buffer that holds a row of its weights."""
        return self.network.slots[self.number]

    @property
    def input_channel(self) -> str:
        outputs, channels, *_ = self.settings["shape"]
        groups = self.settings["groups"]
        return f"o / {outputs // groups} * {channels} + c" if groups > 1 else "c"

    # Rescalings

    @property
    def loads(self) -> list[int]:
        """The convolutions whose row of weights must be loaded for each channel."""
        return [n for n in self.inputs if self.network.steps[n].op == "conv"]

    @cached_property
    def factors(self) -> list[Constant]:
        return [self._constant(f"multiplier{self.number}_{i}", m) for i, m in enumerate(self.arrays["multiplier"])]

    @cached_property
    def bias(self) -> Constant:
        return self._constant(f"bias{self.number}", self.arrays["bias"])

    @cached_property
    def shift(self) -> Constant:
        return self._constant(f"shift{self.number}", self.arrays["shift"], "uint8_t")

    @property
    def constants(self) -> list[Constant]:
        return [*self.factors, self.bias, self.shift] if self.op == "rescale" else []

    @property
    def terms(self) -> list[tuple[str, str]]:
        """The integers that it adds, each with its multiplier."""
        inputs = zip(self.inputs, self.settings["zeros"], self.factors, strict=True)
        return [(self._term(self.network.steps[n], zero), str(factor)) for n, zero, factor in inputs]

    @property
    def value(self) -> str:
        """What it stores, given `total`."""
        s = self.settings
        code = f"shifted(total, {self.shift})"
        if s["divisor"] > 1:
            code = f"divided(total, {s['divisor']}, {self.shift})"
        code += f" + {s['zero']}" if s["zero"] else ""
        value = f"clamped({code}, {s['low']}, {s['high']})"
        if self.is_last or self.is_wide:
            return value
        return f"(uint8_t)({value} - {s['low']})" if s["low"] else f"(uint8_t){value}"

    def _term(self, source: "StepView", zero: int) -> str:
        if source.op == "conv":
            return f"sum{source.number}({'c, ' if source.settings['groups'] > 1 else ''}y, x)"
        if source.op == "sum_pool":
            return f"sum{source.number}(c, y, x)"
        return f"({source.code('c', 'y', 'x', zero)})"

    def _constant(self, name: str, values: IntArray, kind: str = "int32_t") -> Constant:
        return Constant(name, kind, values.tolist())


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
        self.ram = self.arena + 4 * sum(size for _, size in self.wide) + sum(length for _, length in self.rows)

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

"""An option that a comparison sweeps: its name, its values as text, and their places on an axis."""

import math
from dataclasses import dataclass
from typing import Any

WIDTHS = {"weight_bits", "activation_bits"}


@dataclass(frozen=True)
class SweptOption:
    """An option that the comparison sweeps: its key in the YAML file and its values in order."""

    key: str
    values: list[Any]

    @property
    def is_bits(self) -> bool:
        """Whether it is the width of weights, of activations, or of both."""
        return {key.split(".")[-1] for key in self.key.split(", ")} <= WIDTHS

    @property
    def name(self) -> str:
        """A short name: `bits` for the joined pair of widths, else the last part of each key."""
        parts = [key.split(".")[-1] for key in self.key.split(", ")]
        return "bits" if set(parts) == WIDTHS else "/".join(parts)

    @property
    def is_numeric(self) -> bool:
        """Whether the values are numbers, or pairs of widths."""
        numbers = [n for v in self.values for n in (v if isinstance(v, list) and self.is_bits else [v])]
        return all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)

    def place(self, value: Any) -> float:
        """Where a value stands on an axis: a pair of widths at its geometric mean, a name at its index."""
        if not self.is_numeric:
            return self.values.index(value)
        return math.sqrt(math.prod(value)) if isinstance(value, list) else float(value)

    def text(self, value: Any) -> str:
        """A value as the tables write it; a pair of widths is `w3a2`."""
        if isinstance(value, list):
            return "w{}a{}".format(*value) if self.name == "bits" else "/".join(map(str, value))
        return f"{value:g}" if isinstance(value, float) else str(value).lower()

"""An option that a comparison sweeps: its name, its values as text, and their places on an axis."""

import math
from dataclasses import dataclass
from typing import Any

WIDTHS = {"weight_bits", "activation_bits"}


@dataclass(frozen=True)
class Option:
    """An option that the comparison sweeps: its key in the YAML file and its values in order."""

    key: str
    values: list[Any]

    @property
    def is_bits(self) -> bool:
        """Whether it is the width of weights, of activations, or of both."""
        return {key.split(".")[-1] for key in self.key.split(", ")} <= WIDTHS

    @property
    def name(self) -> str:
        """A short name: `bits` for the joined pair, else the last part of the key."""
        parts = [key.strip().split(".")[-1] for key in self.key.split(",")]
        return "bits" if set(parts) == WIDTHS else "/".join(parts)

    @property
    def is_numeric(self) -> bool:
        """Whether the values are numbers, or pairs of widths."""
        numbers = [n for v in self.values for n in (v if isinstance(v, list) and self.is_bits else [v])]
        return all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)

    @property
    def is_logarithmic(self) -> bool:
        """Whether the values are widths, or numbers that span at least two decades."""
        sizes = [abs(self.place(value)) for value in self.values if self.is_numeric and value]
        return bool(sizes) and (self.is_bits or max(sizes) >= 100 * min(sizes))

    def place(self, value: Any) -> float:
        """Where a value stands on an axis: a pair of widths at its geometric mean, a name at its number."""
        if not self.is_numeric:
            return self.values.index(value)
        return math.sqrt(math.prod(value)) if isinstance(value, list) else float(value)

    def text(self, value: Any) -> str:
        """A value as the tables write it; a pair of widths is `w3a2`."""
        if isinstance(value, list):
            return f"w{value[0]}a{value[1]}" if self.name == "bits" else "/".join(map(str, value))
        if value is None or isinstance(value, bool):
            return str(value).lower()
        return f"{value:g}" if isinstance(value, float) else str(value)

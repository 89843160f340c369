"""An option that a comparison sweeps: its name, its values as text, and their places on an axis."""

from dataclasses import dataclass
from typing import Any

WIDTHS = {"weight_bits", "activation_bits"}


@dataclass(frozen=True)
class SweptOption:
    """The key of the option in the YAML file, or several joined by `, `, and its values in order."""

    key: str
    values: list[Any]

    @property
    def name(self) -> str:
        """A short name: `bits` for the joined pair of widths, else the last part of each key."""
        parts = [key.split(".")[-1] for key in self.key.split(", ")]
        return "bits" if set(parts) == WIDTHS else "/".join(parts)

    @property
    def is_bits(self) -> bool:
        return self.name in {"bits", *WIDTHS}

    @property
    def places(self) -> list[float]:
        """Where the values stand on an axis: numbers at their size, all else at its index."""
        is_numeric = all(type(value) in (int, float) for value in self.values)
        return self.values if is_numeric else [float(n) for n in range(len(self.values))]

    def text(self, value: Any) -> str:
        """A value as the tables write it; a pair of widths is `w3a2`."""
        if isinstance(value, list):
            return "w{}a{}".format(*value) if self.name == "bits" else "/".join(map(str, value))
        text = f"{value:g}" if isinstance(value, float) else str(value)
        return text.lower() if isinstance(value, bool | None) else text

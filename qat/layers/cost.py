"""What the layers of a model cost, as numbers and as text."""

from dataclasses import dataclass
from typing import Any

from qat.layers.config import FLOAT

TITLES = ("layer", "kind", "W bits", "A bits", "rounding", "scale W/A", "MACs", "bit ops", "bytes")
ALIGNMENT = "<<>><<>>>"  # text to the left, numbers to the right


@dataclass(frozen=True)
class LayerCost:
    """What one convolution or linear layer costs.

    Args:
        name: of the module.
        kind: its class.
        weight_bits: bits of its weight; 32 is float.
        input_bits: bits of its input, also where an activation quantizes it; 32 is float.
        rounding: of its weight and input; `-` where both are float.
        scale: how their scales are found, `weight/input`.
        macs: multiply-accumulates for one sample.
        weight_bytes: of the weight, packed at its bits; the bias is not counted.
        float_bytes: of the same weight in 32 bits.
    """

    name: str
    kind: str
    weight_bits: int
    input_bits: int
    rounding: str
    scale: str
    macs: int
    weight_bytes: int
    float_bytes: int

    @property
    def bit_operations(self) -> int:
        """`macs * weight_bits * input_bits`."""
        return self.macs * self.weight_bits * self.input_bits


@dataclass(frozen=True)
class Summary:
    """What a model costs.

    Args:
        rows: one for each layer that ran, in order.
        left_float: what computes in float (a module, or a function in a module) -> why.
        not_run: quantized layers that run in training only, such as auxiliary heads; not counted.
        weight_bytes: of all weights; a shared weight is counted once.
        float_bytes: of the same weights in 32 bits.
    """

    rows: list[LayerCost]
    left_float: dict[str, str]
    not_run: list[str]
    weight_bytes: int
    float_bytes: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates for one sample."""
        return sum(row.macs for row in self.rows)

    @property
    def bit_operations(self) -> int:
        """`macs * weight_bits * input_bits`, summed over the layers."""
        return sum(row.bit_operations for row in self.rows)

    @property
    def float_bit_operations(self) -> int:
        """The bit operations of the same model in 32 bits."""
        return self.macs * FLOAT * FLOAT

    def __str__(self) -> str:
        blank = [""] * 5
        lines: list[list[Any]] = []
        for row in self.rows:
            words = [row.name, row.kind, row.weight_bits, row.input_bits, row.rounding, row.scale]
            lines.append([*words, row.macs, row.bit_operations, row.weight_bytes])
        lines.append(["total", *blank, self.macs, self.bit_operations, self.weight_bytes])
        lines.append(["in float", *blank, self.macs, self.float_bit_operations, self.float_bytes])
        table = [TITLES, *([f"{x:,}" if isinstance(x, int) else x for x in line] for line in lines)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        formats = [f"{{:{align}{width}}}" for align, width in zip(ALIGNMENT, widths, strict=True)]
        text = ["  ".join(formats).format(*line).rstrip() for line in table]
        text += [f"left float: {name}: {why}" for name, why in self.left_float.items()]
        text += [f"runs in training only: {name}" for name in self.not_run]
        return "\n".join(text)

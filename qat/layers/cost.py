"""What the layers of a model cost, as numbers and as text."""

from dataclasses import dataclass
from typing import Any

from qat.layers.config import FLOAT

TITLES = ("layer", "kind", "W bits", "A bits", "rounding", "scale W/A", "MACs", "bit ops", "bytes")
ALIGNMENT = "<<>><<>>>"  # text to the left, numbers to the right


@dataclass(frozen=True)
class LayerCost:
    """What one convolution or linear layer costs."""

    name: str  # of the module
    kind: str  # its class
    weight_bits: int  # 32 is float
    input_bits: int  # also where an activation quantizes the input; 32 is float
    rounding: str  # of weight and input; `-` where both are float
    scale: str  # how their scales are found, `weight/input`
    macs: int  # multiply-accumulates for one sample
    weight_bytes: int  # of the weight, packed at its bits; the bias is not counted
    float_bytes: int  # of the same weight in 32 bits

    @property
    def bit_operations(self) -> int:
        """`macs * weight_bits * input_bits`."""
        return self.macs * self.weight_bits * self.input_bits


@dataclass(frozen=True)
class Summary:
    """What a model costs."""

    rows: list[LayerCost]  # one for each layer that ran, in order
    left_float: dict[str, str]  # what computes in float (a module, or a function in a module) -> why
    not_run: list[str]  # quantized layers that run in training only, such as auxiliary heads; not counted
    weight_bytes: int  # of all weights; a shared weight is counted once
    float_bytes: int  # of the same weights in 32 bits

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

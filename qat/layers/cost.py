"""What the layers of a model cost, as numbers and as text."""

from dataclasses import dataclass

from qat.layers.config import FLOAT

TITLES = ("layer", "kind", "W bits", "A bits", "rounding", "scale W/A", "MACs", "bit ops", "bytes")
TEXT_COLUMNS = (0, 1, 4, 5)  # aligned to the left; numbers to the right


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
        totals = {
            "total": (self.macs, self.bit_operations, self.weight_bytes),
            "in float": (self.macs, self.float_bit_operations, self.float_bytes),
        }
        lines: list[tuple[str, ...]] = [TITLES]
        for row in self.rows:
            words = (row.name, row.kind, str(row.weight_bits), str(row.input_bits), row.rounding, row.scale)
            lines.append((*words, *_counts(row.macs, row.bit_operations, row.weight_bytes)))
        lines += [(name, *[""] * 5, *_counts(*counts)) for name, counts in totals.items()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = []
        for line in lines:
            cells = [
                cell.ljust(width) if column in TEXT_COLUMNS else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            text.append("  ".join(cells).rstrip())
        text += [f"left float: {name}: {why}" for name, why in self.left_float.items()]
        text += [f"runs in training only: {name}" for name in self.not_run]
        return "\n".join(text)


def _counts(*counts: int) -> tuple[str, ...]:
    return tuple(f"{count:,}" for count in counts)

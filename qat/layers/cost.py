"""What the layers of a model cost, as rows and as text."""

from dataclasses import dataclass

from qat.layers.config import FLOAT


@dataclass(frozen=True)
class Row:
    """One convolution or linear layer.

    Args:
        name: of the module.
        kind: its class.
        weight_bits: of its weight; 32 is float.
        input_bits: of what it reads, also where an activation before it quantized that; 32 is float.
        rounding: of its weight and input, `-` where both are float.
        scale: where their scales come from, `weight/input`.
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
    """All layers that ran, in order.

    Args:
        rows: one for each.
        left_float: what computes in float, a module or a function in one -> why.
        not_run: quantized layers that run in training alone, auxiliary heads for one; not counted.
        weight_bytes: of all weights, a shared one counted once.
        float_bytes: of the same in 32 bits.
    """

    rows: list[Row]
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
        """The same at 32 bits throughout."""
        return self.macs * FLOAT * FLOAT

    def __str__(self) -> str:
        titles = ("layer", "kind", "W bits", "A bits", "rounding", "scale W/A", "MACs", "bit ops", "bytes")
        lines = [titles, *(_cells(row) for row in self.rows)]
        lines += [
            ("total", "", "", "", "", "", *_counts(self.macs, self.bit_operations, self.weight_bytes)),
            (
                "in float",
                "",
                "",
                "",
                "",
                "",
                *_counts(self.macs, self.float_bit_operations, self.float_bytes),
            ),
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(_padded, line, widths, range(len(line)))).rstrip() for line in lines]
        text += [f"left float: {name}: {why}" for name, why in self.left_float.items()]
        text += [f"runs in training alone: {name}" for name in self.not_run]
        return "\n".join(text)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        *(row.name, row.kind, str(row.weight_bits), str(row.input_bits), row.rounding, row.scale),
        *_counts(row.macs, row.bit_operations, row.weight_bytes),
    )


def _counts(*counts: int) -> tuple[str, ...]:
    return tuple(f"{count:,}" for count in counts)


def _padded(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if column in (2, 3, 6, 7, 8) else cell.ljust(width)

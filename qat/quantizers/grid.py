"""Integer grids: the codes that a quantizer may use."""

from dataclasses import dataclass

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 16)


def check_bits(argument: str, bits: object, widths: tuple[int, ...] = WIDTHS) -> None:
    """Raise a ValueError that names the argument if `bits` is not an int of `widths`."""
    if type(bits) is not int or bits not in widths:
        allowed = ", ".join(map(str, widths))
        raise ValueError(f"{argument} must be one of the integers {allowed}; got {bits!r}")


@dataclass(frozen=True)
class IntGrid:
    """The codes `low, low + step, ..., high`.

    By default a signed grid is narrow (4 bits: -7..7; full: -8..7). An unsigned grid is full (4 bits: 0..15).
    At one bit the signed grid is {-1, +1}, the unsigned one {0, 1}.

    Raises:
        ValueError: `bits` is not 1 to 8 or 16, `signed` or `narrow` is no bool, or `narrow` does not fit
            the grid.
    """

    bits: int
    signed: bool = True  # whether codes may be negative
    narrow: bool | None = None  # omit the lowest code of a signed grid; None means `signed`

    def __post_init__(self) -> None:
        check_bits("bits", self.bits)
        if type(self.signed) is not bool:
            raise ValueError(f"signed must be True or False, got {self.signed!r}")
        if self.narrow is not None and type(self.narrow) is not bool:
            raise ValueError(f"narrow must be True, False or None, got {self.narrow!r}")
        if self.narrow and not self.signed:
            raise ValueError("narrow must be False or None on an unsigned grid, got True; set signed=True")
        if self.narrow is False and self.signed and self.bits == 1:
            raise ValueError("narrow must be True or None at 1 signed bit, got False; the codes are -1, +1")

    @property
    def low(self) -> int:
        """The smallest code."""
        if not self.signed:
            return 0
        if self.bits == 1:
            return -1
        return -(2 ** (self.bits - 1)) + (self.narrow is not False)

    @property
    def high(self) -> int:
        """The largest code."""
        if not self.signed:
            return 2**self.bits - 1
        return max(2 ** (self.bits - 1) - 1, 1)

    @property
    def step(self) -> int:
        """The distance between neighbouring codes: 2 on the grid {-1, +1}, otherwise 1."""
        return 2 if self.signed and self.bits == 1 else 1

    @property
    def levels(self) -> int:
        """The number of codes."""
        return (self.high - self.low) // self.step + 1

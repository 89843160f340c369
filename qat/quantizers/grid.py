"""Integer grids: the codes that a quantizer may use."""

from dataclasses import dataclass

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 16)
MIDRISE_WIDTHS = (1, 2, 3, 4)  # of grids without a zero, which gain little with more codes


def check_bits(argument: str, bits: object, widths: tuple[int, ...] = WIDTHS) -> None:
    """Raise a ValueError that names the argument if `bits` is not an int of `widths`."""
    if type(bits) is not int or bits not in widths:
        allowed = ", ".join(map(str, widths))
        raise ValueError(f"{argument} must be one of the integers {allowed}; got {bits!r}")


@dataclass(frozen=True)
class IntGrid:
    """The codes `low, low + step, ..., high`.

    By default a signed grid is narrow (4 bits: -7..7; full: -8..7). An unsigned grid is full (4 bits: 0..15).
    A midrise grid holds the odd numbers alone, all `2^bits` of them, and no zero (2 bits: -3, -1, 1, 3). At
    one bit the signed grid is {-1, +1}, which is midrise; the unsigned one is {0, 1}.

    Raises:
        ValueError: `bits` is not 1 to 8 or 16, a flag is no bool, or `narrow` or `midrise` does not fit the
            grid.

    Source: Gersho & Gray 1992, "Vector quantization and signal compression", section 5.2 (midrise and
    midtread).
    """

    bits: int
    signed: bool = True  # whether codes may be negative
    narrow: bool | None = None  # omit the lowest code of a signed grid; None means `signed`
    midrise: bool = False  # odd codes, so that 0 lies between two of them; always true at 1 signed bit

    def __post_init__(self) -> None:
        check_bits("bits", self.bits)
        if type(self.signed) is not bool:
            raise ValueError(f"signed must be True or False, got {self.signed!r}")
        if type(self.midrise) is not bool:
            raise ValueError(f"midrise must be True or False, got {self.midrise!r}")
        if self.midrise and not self.signed:
            raise ValueError("midrise must be False on an unsigned grid, got True; set signed=True")
        if self.midrise and self.bits not in MIDRISE_WIDTHS:
            raise ValueError(f"midrise must be False with more than 4 bits, got True with {self.bits}")
        if self.signed and self.bits == 1:
            object.__setattr__(self, "midrise", True)
        if self.narrow is not None and type(self.narrow) is not bool:
            raise ValueError(f"narrow must be True, False or None, got {self.narrow!r}")
        if self.narrow and not self.signed:
            raise ValueError("narrow must be False or None on an unsigned grid, got True; set signed=True")
        if self.narrow is False and self.midrise:
            where = "at 1 signed bit" if self.bits == 1 else "on a midrise grid"
            raise ValueError(f"narrow must be True or None {where}, got False; its codes are odd numbers")

    def widened(self, bits: int) -> "IntGrid":
        """A grid of the same kind with this number of bits; one without a zero gets one above 4 bits."""
        return IntGrid(bits, self.signed, self.narrow, self.midrise and bits in MIDRISE_WIDTHS)

    @property
    def low(self) -> int:
        """The smallest code."""
        if not self.signed:
            return 0
        if self.midrise:
            return -self.high
        return -(2 ** (self.bits - 1)) + (self.narrow is not False)

    @property
    def high(self) -> int:
        """The largest code."""
        if not self.signed or self.midrise:
            return 2**self.bits - 1
        return 2 ** (self.bits - 1) - 1

    @property
    def step(self) -> int:
        """The distance between neighbouring codes: 2 on a midrise grid, otherwise 1."""
        return 2 if self.midrise else 1

    @property
    def levels(self) -> int:
        """The number of codes."""
        return (self.high - self.low) // self.step + 1

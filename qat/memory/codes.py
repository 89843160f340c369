"""Values on a grid as packed codes, and back to the identical floats."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from qat.quantizers import IntGrid
from qat.quantizers.kernels import flat

CHUNK = 2**20  # elements at a time, for the reasons in `quantizers/kernels.py`


def bits_stored(bits: int) -> int:
    """The bits that a code of so many takes: 1, 2, 4, 8 or 16; three take four, five to seven take eight."""
    return next(width for width in (1, 2, 4, 8, 16) if bits <= width)


def pack_bits(index: Tensor, bits: int) -> Tensor:
    """Small integers, several to a byte.

    The tensor is folded in the middle, its second half into the next higher bits, until bytes are full.
    Neighbours would share a byte more naturally, but then every access has a stride.

    Args:
        index: uint8 `(n,)`, each below `2 ** bits`.
        bits: 1, 2, 4 or 8.

    Shape: `(n,)` -> uint8 `(ceil(n bits / 8),)`.
    """
    if bits == 8:
        return index
    half = -(-len(index) // 2)
    folded = index[:half].clone()
    folded[: len(index) - half].add_(index[half:], alpha=2**bits)  # shifts and joins in one pass
    return pack_bits(folded, 2 * bits)


def unpack_bits(packed: Tensor, bits: int, count: int) -> Tensor:
    """The inverse of `pack_bits`. Shape: uint8 `(ceil(count bits / 8),)` -> uint8 `(count,)`."""
    if bits == 8:
        return packed
    half = -(-count // 2)
    folded = unpack_bits(packed, 2 * bits, half)
    index = folded.new_empty(count)
    torch.bitwise_and(folded, 2**bits - 1, out=index[:half])
    torch.bitwise_right_shift(folded[: count - half], bits, out=index[half:])
    return index


@dataclass(frozen=True)
class Codes:
    """What the codes of one tensor mean: `value = (index * step + low - zero_point) * scale`.

    Args:
        grid: its ends and the step between two codes.
        scale: that the tensor was quantized with, float32 `()` or one that broadcasts against it.
        zero_point: the code of 0.0; None: 0.
    """

    grid: IntGrid
    scale: Tensor
    zero_point: Tensor | None

    @property
    def bits(self) -> int:
        """The bits that an element takes."""
        return bits_stored(self.grid.bits)

    def encode(self, x: Tensor) -> Tensor:
        """Shape: values on the grid, dense -> packed codes, uint8 or for 16 bits int16, in storage order."""
        whole = torch.int16 if self.bits == 16 else torch.int8
        if self.scale.numel() > 1:
            index = flat(self._index(x).to(whole))
        else:
            row = flat(x)
            index = torch.empty(len(row), dtype=whole, device=x.device)
            for start in range(0, len(row), CHUNK):
                index[start : start + CHUNK] = self._index(row[start : start + CHUNK])
        return index if self.bits == 16 else pack_bits(index.view(torch.uint8), self.bits)

    def decode(self, packed: Tensor, size: torch.Size, stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The values, bit for bit.

        Args:
            packed: what `encode` gave.
            size, stride, dtype: of the values.
        """
        out = torch.empty_strided(size, stride, dtype=dtype, device=packed.device)
        index = packed
        if self.bits < 16:
            index = unpack_bits(packed, self.bits, out.numel()).view(torch.int8)
        if self.scale.numel() > 1:
            self._fill(out, index.as_strided(size, stride))
            return out
        row = flat(out)
        for start in range(0, len(row), CHUNK):
            self._fill(row[start : start + CHUNK], index[start : start + CHUNK])
        return out

    @property
    def _first(self) -> int:
        """The code whose index is stored as 0.

        Whole bytes are stored signed, with the grid in the middle: floats become int8 several times faster
        than uint8.
        """
        return self.grid.low + (2 ** (self.bits - 1) if self.bits >= 8 else 0)

    def _index(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        index = (wide / self.scale).round_()  # a whole number already, but for the last bits
        if self.zero_point is not None:
            index.add_(self.zero_point)
        if x.itemsize == 2:
            index.clamp_(self.grid.low, self.grid.high)  # in float16 the largest values may be infinite
        if self._first:
            index.sub_(self._first)
        if self.grid.step != 1:
            index.div_(self.grid.step)
        return index

    def _fill(self, out: Tensor, index: Tensor) -> None:
        wide = torch.promote_types(out.dtype, torch.float32)
        code = out if out.dtype == wide else torch.empty_like(out, dtype=wide)
        code.copy_(index)
        if self.grid.step != 1:
            code.mul_(self.grid.step)
        if self._first:
            code.add_(self._first)
        if self.zero_point is not None:
            code.sub_(self.zero_point)
        code.mul_(self.scale)
        if code is not out:
            out.copy_(code)


@dataclass(frozen=True)
class Bools:
    """Truth values, a bit each; the same two methods as `Codes`."""

    bits: ClassVar[int] = 1

    def encode(self, x: Tensor) -> Tensor:
        """Shape: bools, dense -> uint8, in storage order."""
        return pack_bits(flat(x).view(torch.uint8), 1)

    def decode(self, packed: Tensor, size: torch.Size, stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The bools. Args: as in `Codes.decode`."""
        return unpack_bits(packed, 1, size.numel()).view(dtype).as_strided(size, stride)

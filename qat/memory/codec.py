"""Encode values on a grid as packed codes, and decode them to the identical floats."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from qat.quantizers import IntGrid
from qat.quantizers.kernels import CHUNK, flat


def bits_stored(bits: int) -> int:
    """How many bits a code of `bits` bits is stored in: 1, 2, 4, 8 or 16."""
    return next(width for width in (1, 2, 4, 8, 16) if bits <= width)


def pack_bits(index: Tensor, bits: int) -> Tensor:
    """Pack small integers, several to a byte.

    The second half of the tensor is moved into the next higher bits of the first half, until the bytes are
    full. To pack neighbours into one byte would be more natural, but each access would then have a stride.

    Shape: uint8 `(n,)`, each below `2 ** bits` -> uint8 `(ceil(n bits / 8),)`, for 1, 2, 4 or 8 bits.
    """
    if bits == 8:
        return index
    half = -(-len(index) // 2)
    folded = index[:half].clone()
    folded[: len(index) - half].add_(index[half:], alpha=2**bits)  # shift and join in one pass
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
class GridCodec:
    """Encodes values on a grid: `value = (index * step + low - zero_point) * scale`."""

    grid: IntGrid
    scale: Tensor  # float32, `()` or a shape that broadcasts against the tensor
    zero_point: Tensor | None  # the code of 0.0; None means 0

    @property
    def bits(self) -> int:
        """How many bits an element is stored in."""
        return bits_stored(self.grid.bits)

    def encode(self, x: Tensor) -> Tensor:
        """Shape: values on the grid, dense -> packed codes, uint8 or for 16 bits int16, in storage order."""
        index = torch.empty_like(x, dtype=torch.int16 if self.bits == 16 else torch.int8)
        for part, values in zip(self._parts(index), self._parts(x), strict=True):
            part.copy_(self._index(values))
        row = flat(index)
        return row if self.bits == 16 else pack_bits(row.view(torch.uint8), self.bits)

    def decode(self, packed: Tensor, size: torch.Size, stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The values of this size, stride and dtype that `encode` packed, bit for bit."""
        out = torch.empty_strided(size, stride, dtype=dtype, device=packed.device)
        index = packed
        if self.bits < 16:
            index = unpack_bits(packed, self.bits, out.numel()).view(torch.int8)
        for part, indices in zip(self._parts(out), self._parts(index.as_strided(size, stride)), strict=True):
            self._fill(part, indices)
        return out

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """Pieces of a dense tensor; the whole tensor where its channels have their own scales."""
        return (x,) if self.scale.numel() > 1 else flat(x).split(CHUNK)

    @property
    def _first(self) -> int:
        """The code whose index is 0.

        Indices of 8 and 16 bits are signed, with the grid in the middle, because a conversion of floats to
        int8 is several times faster than one to uint8.
        """
        return self.grid.low + (2 ** (self.bits - 1) if self.bits >= 8 else 0)

    def _index(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        index = (wide / self.scale).round_()  # the quotient is a whole number but for its last bits
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
class BoolCodec:
    """Encodes booleans, one bit each; it has the methods of `GridCodec`."""

    bits: ClassVar[int] = 1

    def encode(self, x: Tensor) -> Tensor:
        """Shape: dense booleans -> uint8, in storage order."""
        return pack_bits(flat(x).view(torch.uint8), 1)

    def decode(self, packed: Tensor, size: torch.Size, stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The booleans; the arguments are those of `GridCodec.decode`."""
        return unpack_bits(packed, 1, size.numel()).view(dtype).as_strided(size, stride)

"""Masks in forms that the CPU's vector units take: torch's kernels on bools do not use them."""

import torch
from torch import Tensor

_INTEGER = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes an element


def equal(x: Tensor, y: Tensor) -> Tensor:
    """`x == y` as bools, several times faster for floats. Shape: any, twice the same -> the same."""
    return x.clone().eq_(y).to(torch.bool)


def masked(g: Tensor, mask: Tensor) -> Tensor:
    """`g` where `mask`, else exactly 0, also where g is infinite or not a number.

    Where it will be differentiated again this is `torch.where(mask, g, 0)`; else the mask's bits are laid on
    those of g, which is ten times faster.

    Args:
        g: a gradient, any shape, floats.
        mask: bools of the same shape.

    Shape: any -> the same.
    """
    if torch.is_grad_enabled() and g.requires_grad:
        return torch.where(mask, g, 0.0)
    return with_bits(g, mask.view(torch.int8))


def with_bits(g: Tensor, mask: Tensor) -> Tensor:
    """`masked` for a mask of int8 zeros and ones, without a derivative."""
    integer = _INTEGER[g.itemsize]
    bits = mask.to(integer).neg_()  # all or none
    return bits.bitwise_and_(g.view(integer)).view(g.dtype)

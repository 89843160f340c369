"""Masks in forms that the CPU's vector units can use: torch does not vectorise its kernels on bools."""

import torch
from torch import Tensor

_INTEGER = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per element


def equal(x: Tensor, y: Tensor) -> Tensor:
    """`x == y` as bools, several times faster for floats. Shape: any, twice the same -> the same."""
    return x.clone().eq_(y).to(torch.bool)


def masked(g: Tensor, mask: Tensor) -> Tensor:
    """`g` where `mask` is true, else exactly 0, also where g is infinite or NaN.

    If the result may be differentiated again, this is `torch.where(mask, g, 0)`. Otherwise it is the faster
    `masked_bitwise`.

    Args:
        g: a gradient, any shape, floats.
        mask: bools of the same shape.

    Shape: any -> the same.
    """
    if torch.is_grad_enabled() and g.requires_grad:
        return torch.where(mask, g, 0.0)
    return masked_bitwise(g, mask.view(torch.int8))


def masked_bitwise(g: Tensor, mask: Tensor) -> Tensor:
    """`masked` by a bitwise and, ten times faster than `torch.where`, for an int8 mask of zeros and ones.

    It has no derivative. Shape: any, twice the same -> the same.
    """
    integer = _INTEGER[g.itemsize]
    bits = mask.to(integer).neg_()  # 0 keeps no bit, -1 keeps all bits
    return bits.bitwise_and_(g.view(integer)).view(g.dtype)

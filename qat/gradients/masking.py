"""Fast masks for the CPU: torch does not vectorise its kernels for bools."""

import torch
from torch import Tensor

_INTEGER = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per element


def equal(x: Tensor, y: Tensor) -> Tensor:
    """`x == y` for floats of one shape, several times faster."""
    return x.clone().eq_(y).to(torch.bool)


def masked(g: Tensor, mask: Tensor) -> Tensor:
    """`g` where `mask` is true, else exactly 0, also where g is infinite or NaN.

    If the result may be differentiated again, this is `torch.where(mask, g, 0)`. Otherwise it is the faster
    `masked_bitwise`. `g` holds floats; `mask` holds bools and has the same shape.
    """
    if torch.is_grad_enabled() and g.requires_grad:
        return torch.where(mask, g, 0.0)
    return masked_bitwise(g, mask.view(torch.int8))


def masked_bitwise(g: Tensor, mask: Tensor) -> Tensor:
    """`masked` by a bitwise and, without a derivative, for an int8 mask of zeros and ones.

    It is ten times faster than `torch.where`.
    """
    integer = _INTEGER[g.itemsize]
    bits = mask.to(integer).neg_()  # 0 keeps no bit, -1 keeps all bits
    return bits.bitwise_and_(g.view(integer)).view(g.dtype)

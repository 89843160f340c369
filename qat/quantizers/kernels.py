"""The arithmetic of fake-quantizing, forward and backward, without autograd; `fused.py` wraps it.

Here it is written in eager operations; large tensors go to `compiled.py` where that is in use.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from qat.gradients.masking import masked, with_bits
from qat.quantizers import compiled
from qat.quantizers.layout import flat, is_dense

# Elements at a time: what lies between two operations then stays in the cache. With smaller pieces several
# threads cost more to wake, at every operation, than they save.
CHUNK = 2**20


def forward(
    x: Tensor, scale: Tensor, low: int, high: int, clamps_first: bool, relu: bool
) -> tuple[Tensor, Tensor]:
    """`clamp(round(x / scale), low, high) * scale` and where its gradient passes.

    Args:
        x: any shape.
        scale: float32, > 0, broadcasts against x.
        low, high: the grid's ends.
        clamps_first: inside means `low <= x / scale <= high`; else the same of `round(x / scale)`.
        relu: x comes through a ReLU first; its gradient passes where x > 0. `low` is then 0.

    Shape: any -> twice the same: the value in x's dtype, never -0.0; inside as bools.
    """
    if torch.compiler.is_compiling():
        value, inside = compiled.forward(x, scale, low, high, clamps_first, relu)
        return value, inside.view(torch.bool)
    rows = _rows(x, scale)
    if rows is not None:
        run = compiled.kernel(compiled.forward)
        value, inside = run(*_operands(x, scale, low, high, rows), clamps_first, relu)
        return _shaped(value, x), _shaped(inside.view(torch.bool), x)
    value, inside = torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
    for part, of_value, of_inside in _parts(scale, x, value, inside):
        wide = compiled.wide(part)
        v = wide / scale
        if not clamps_first:
            v.round_()
        code = v.clamp(low, high)
        # Written as floats, in place: comparisons that store bools are not vectorised.
        passes = v.eq_(code)
        if clamps_first:
            code.round_()
        if relu:
            passes = torch.ops.aten.threshold_backward(passes, wide, 0)
        of_value.copy_(code.mul_(scale).add_(0.0))
        of_inside.copy_(passes)
    return value, inside


def value(x: Tensor, scale: Tensor, low: int, high: int) -> Tensor:
    """`clamp(round(x / scale), low, high) * scale` alone. Shape: any -> the same, in x's dtype."""
    if torch.compiler.is_compiling():
        return compiled.quantized(x, scale, low, high)
    rows = _rows(x, scale)
    if rows is not None:
        return _shaped(compiled.kernel(compiled.quantized)(*_operands(x, scale, low, high, rows)), x)
    value = torch.empty_like(x)
    for part, of_value in _parts(scale, x, value):
        v = (compiled.wide(part) / scale).round_()
        of_value.copy_(v.clamp_(low, high).mul_(scale).add_(0.0))
    return value


def backward(g: Tensor, inside: Tensor) -> Tensor:
    """`g` where `inside`, else 0. Shape: any -> the same."""
    traced = torch.compiler.is_compiling() or torch.is_grad_enabled()
    if traced or g.stride() != inside.stride() or not is_dense(g):
        return masked(g, inside)
    if compiled.takes(g):
        mask = flat(inside).view(torch.int8)
        return _shaped(compiled.kernel(with_bits)(flat(g)[None], mask[None]), g)
    of_x = torch.empty_like(g)
    for of_part, part, passes in zip(*(flat(t).split(CHUNK) for t in (of_x, g, inside)), strict=True):
        of_part.copy_(masked(part, passes))
    return of_x


def learned_backward(
    g: Tensor, x: Tensor, scale: Tensor, low: int, high: int, relu: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of x and of a learned scale (LSQ).

    With v = x / scale: `g` where `low <= v <= high` (and x > 0 after a ReLU), else 0; and the sum of
    `g (round(v) - v)` inside, of `g low` or `g high` outside.

    Args:
        g: the gradient of the value, in x's dtype.
        The others are those of `forward`.

    Shape: that of x, and that of the scale.
    """
    if torch.compiler.is_compiling():
        of_x, share = compiled.by_element(g, x, scale, low, high, relu)
        return of_x, share.sum_to_size(scale.shape).to(scale.dtype)
    rows = _rows(x, scale)
    if rows is not None and g.stride() == x.stride() and is_dense(g):
        run = compiled.kernel(compiled.learned)
        of_x, share = run(flat(g.detach()).view(rows, -1), *_operands(x, scale, low, high, rows), relu)
        return _shaped(of_x, x), share.view(scale.shape)
    of_x, shares = torch.empty_like(x), []
    for part, of_part, of_value in _parts(scale, x, of_x, g):
        wide = compiled.wide(part)
        v = wide / scale
        limited = v.clamp(low, high)
        inside = v.eq_(limited)
        # Outside, `limited` is an end, which is the code: the error is then the code itself.
        error = limited.round().sub_(limited.mul_(inside))
        shares.append(error.mul_(of_value).sum_to_size(scale.shape))
        if relu:
            inside = torch.ops.aten.threshold_backward(inside, wide, 0)
        of_part.copy_(masked(of_value, inside.to(torch.bool)))
    return of_x, torch.stack(shares).sum(0).to(scale.dtype)


def _parts(scale: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same pieces of some tensors, small enough for the cache where it can be; else they themselves."""
    x = tensors[0]
    whole = scale.numel() > 1 or x.numel() <= CHUNK
    if whole or not all(is_dense(t) and t.stride() == x.stride() for t in tensors):
        yield tensors
    else:
        yield from zip(*(flat(t).split(CHUNK) for t in tensors), strict=True)


def _rows(x: Tensor, scale: Tensor) -> int | None:
    """The rows of the matrix that the compiled kernels get, one for each scale; None: they do not take it."""
    if not compiled.takes(x) or not is_dense(x):
        return None
    rows = scale.numel()
    outermost = rows == 1 or (scale.shape[:1] == x.shape[:1] == (rows,) and x.stride(0) * rows == x.numel())
    return rows if outermost else None


def _operands(x: Tensor, scale: Tensor, low: int, high: int, rows: int) -> tuple[Tensor, ...]:
    ends = (compiled.constant(end, x.device) for end in (low, high))
    return flat(x.detach()).view(rows, -1), scale.detach().view(rows, 1), *ends


def _shaped(matrix: Tensor, like: Tensor) -> Tensor:
    """The stored elements of a matrix in the shape and strides of another tensor."""
    return matrix.as_strided(like.shape, like.stride())

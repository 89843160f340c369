"""The arithmetic of fake-quantization, forward and backward, without autograd.

Each formula is written once, for whole tensors. It runs inside the graph of a network that is compiled as a
whole; or as one fused pass made by `torch.compile`, for large tensors; or eagerly, in pieces that fit the
cache. All three give the same bits, except for the gradient of a learned scale, which is summed in another
order. Fused passes see a tensor as a matrix in storage order with a row for each scale, so that one
compilation serves all shapes and memory formats.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from qat.gradients.masking import masked, masked_bitwise

Bound = Tensor | float
Kernel = Callable[..., Any]

# Elements per piece: the intermediate results then stay in the cache. In smaller pieces, waking several
# threads for every operation costs more than the cache saves.
CHUNK = 2**20
COMPILED_MIN_SIZE = 2**15  # elements; below, calling a fused pass costs more than it saves
COMPILED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_RECOMPILE_LIMIT = 64  # compilations of one function: by dtype, one row or several, device
_EXACT_DIVISION = {"eager_numerics.division_rounding": True}  # CUDA's default division may be one bit off


def forward(
    x: Tensor, scale: Tensor, low: int, high: int, odd: bool, clamps_first: bool, relu: bool, compiled: bool
) -> tuple[Tensor, Tensor]:
    """The value of `FakeQuantize`, and the mask of the elements whose gradient passes.

    `low` and `high` are bounds of n, which is the code, or with `odd` the half of `code - 1`. With
    `clamps_first` n is clamped before it is rounded, which changes only the mask; with `relu`, for which
    `low` must be 0, `max(x, 0)` is quantized; with `compiled` by the fused pass if it supports x.
    Shape: any -> twice the same: the value in x's dtype, never -0.0; the mask as bools.
    """
    if torch.compiler.is_compiling():
        value, mask = _forward_kernel(x, scale, low, high, odd, clamps_first, relu)
        return value, mask.view(torch.bool)
    if compiled and (rows := _matrix_rows(x, scale)):
        value, mask = fused(_forward_kernel)(*_as_matrix(x, scale, low, high, rows), odd, clamps_first, relu)
        return _with_layout_of(x, value), _with_layout_of(x, mask.view(torch.bool))
    value, mask = torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
    for part, part_value, part_mask in _pieces(scale, x, value, mask):
        computed, passes = _value_and_mask(part, scale, low, high, odd, clamps_first, relu)
        part_value.copy_(computed)
        part_mask.copy_(passes)
    return value, mask


def value(x: Tensor, scale: Tensor, low: int, high: int, odd: bool, compiled: bool) -> Tensor:
    """The value of `forward` alone."""
    if torch.compiler.is_compiling():
        return _value_kernel(x, scale, low, high, odd)
    if compiled and (rows := _matrix_rows(x, scale)):
        return _with_layout_of(x, fused(_value_kernel)(*_as_matrix(x, scale, low, high, rows), odd))
    value = torch.empty_like(x)
    for part, part_value in _pieces(scale, x, value):
        part_value.copy_(_value_kernel(part, scale, low, high, odd))
    return value


def backward(g: Tensor, mask: Tensor, compiled: bool) -> Tensor:
    """`g` where `mask` is true, else 0."""
    in_graph = torch.compiler.is_compiling() or torch.is_grad_enabled()
    if in_graph or g.stride() != mask.stride() or not is_dense(g):
        return masked(g, mask)
    if compiled and is_fusible(g):
        return _with_layout_of(g, fused(masked_bitwise)(flat(g)[None], flat(mask).view(torch.int8)[None]))
    grad_x = torch.empty_like(g)
    for part_grad, part, passes in zip(*(flat(t).split(CHUNK) for t in (grad_x, g, mask)), strict=True):
        part_grad.copy_(masked(part, passes))
    return grad_x


def learned_backward(
    g: Tensor, x: Tensor, scale: Tensor, low: int, high: int, odd: bool, relu: bool, compiled: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the scale in `FakeQuantizeLearned`; the arguments are those of `forward`."""
    if torch.compiler.is_compiling():
        return _learned_kernel(g, x, scale, low, high, odd, relu)
    if compiled and (rows := _matrix_rows(x, scale)) and g.stride() == x.stride() and is_dense(g):
        matrix = flat(g.detach()).view(rows, -1)
        grad_x, sums = fused(_learned_kernel)(matrix, *_as_matrix(x, scale, low, high, rows), odd, relu)
        return _with_layout_of(x, grad_x), sums.view(scale.shape)
    grad_x, partial_sums = torch.empty_like(x), []
    for part, part_grad, part_g in _pieces(scale, x, grad_x, g):
        mask, terms = _mask_and_scale_terms(part_g, part, scale, low, high, odd, relu)
        partial_sums.append(terms.sum_to_size(scale.shape))
        part_grad.copy_(masked(part_g, mask.to(torch.bool)))
    return grad_x, torch.stack(partial_sums).sum(0).to(scale.dtype)


# The formulas. Masks are floats, computed in place: comparisons that store bools are not vectorised.


def _value_and_mask(
    x: Tensor, scale: Tensor, low: Bound, high: Bound, odd: bool, clamps_first: bool, relu: bool
) -> tuple[Tensor, Tensor]:
    wide = _upcast(x)
    v = _divide(wide, scale, odd)
    if not clamps_first:
        v.round_()
    n = _clamp(v, low, high)
    mask = v.eq_(n)
    if clamps_first:
        n.round_()
    return _dequantize(n, scale, odd), torch.ops.aten.threshold_backward(mask, wide, 0) if relu else mask


def _mask_and_scale_terms(
    g: Tensor, x: Tensor, scale: Tensor, low: Bound, high: Bound, odd: bool, relu: bool
) -> tuple[Tensor, Tensor]:
    """The mask of x's gradient, and the term of each element in the gradient of the scale."""
    wide = _upcast(x)
    v = _divide(wide, scale, odd)
    clamped = _clamp(v, low, high)
    mask = v.eq_(clamped)
    # Outside the grid, the lowest or highest code itself is the factor of g.
    error = clamped.round().sub_(clamped.mul_(mask))
    if odd:
        error.mul_(2).add_(1 - mask)
    return torch.ops.aten.threshold_backward(mask, wide, 0) if relu else mask, error.mul_(g)


def _upcast(x: Tensor) -> Tensor:
    """In float32 or wider: computed in bfloat16, 18 % of 8-bit codes would differ."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _clamp(x: Tensor, low: Bound, high: Bound) -> Tensor:
    return torch.clamp(x, low, high)  # type: ignore[arg-type] # both are numbers, or both are tensors


def _divide(wide: Tensor, scale: Tensor, odd: bool) -> Tensor:
    v = wide / scale
    return v.sub_(1).mul_(0.5) if odd else v  # so that odd numbers become neighbours; halving is exact


def _dequantize(n: Tensor, scale: Tensor, odd: bool) -> Tensor:
    if odd:
        return n.mul_(2).add_(1).mul_(scale)
    if torch.compiler.is_compiling():
        return torch.where(n == 0, 0.0, n * scale)  # the compiler would remove `+ 0.0`
    return n.mul_(scale).add_(0.0)  # -0.0 becomes 0.0


# The formulas as fused passes. Shape: `(C, n)` and scales `(C, 1)` -> `(C, n)`; their gradient is `(C, 1)`.


def _value_kernel(x: Tensor, scale: Tensor, low: Bound, high: Bound, odd: bool) -> Tensor:
    n = _clamp(_divide(_upcast(x), scale, odd).round_(), low, high)
    return _dequantize(n, scale, odd).to(x.dtype)


def _forward_kernel(
    x: Tensor, scale: Tensor, low: Bound, high: Bound, odd: bool, clamps_first: bool, relu: bool
) -> tuple[Tensor, Tensor]:
    value, mask = _value_and_mask(x, scale, low, high, odd, clamps_first, relu)
    return value.to(x.dtype), mask.to(torch.int8)


def _learned_kernel(
    g: Tensor, x: Tensor, scale: Tensor, low: Bound, high: Bound, odd: bool, relu: bool
) -> tuple[Tensor, Tensor]:
    mask, terms = _mask_and_scale_terms(g, x, scale, low, high, odd, relu)
    return torch.where(mask > 0, g, 0.0), terms.sum_to_size(scale.shape).to(scale.dtype)


@cache
def fused(kernel: Kernel) -> Kernel:
    """One fused pass, compiled at its first call."""
    return torch.compile(  # type: ignore[call-overload] # torch's stub lacks recompile_limit
        kernel, dynamic=True, fullgraph=True, recompile_limit=_RECOMPILE_LIMIT, options=_EXACT_DIVISION
    )


def warm_ups(device: torch.device, odd: bool) -> list[Callable[[], object]]:
    """Calls that together compile all fused passes for float32 tensors, or load them from the disk.

    They are those of grids with all codes, or with `odd` those of midrise grids, which are of weights.
    """
    x, scale = torch.ones(COMPILED_MIN_SIZE, device=device), torch.ones((), device=device)
    flags = (False, True)  # each value is compiled separately
    relus = flags[: 1 if odd else 2]
    return [
        partial(value, x, scale, -7, 7, odd, True),
        *(partial(forward, x, scale, -7, 7, odd, first, relu, True) for first in flags for relu in relus),
        *(partial(learned_backward, x, x, scale, -7, 7, odd, relu, True) for relu in relus),
        partial(backward, x, x.bool(), True),
    ]


def is_fusible(x: Tensor) -> bool:
    """Whether a fused pass supports a tensor's dtype and is worth its call."""
    return x.numel() >= COMPILED_MIN_SIZE and x.dtype in COMPILED_DTYPES


def is_dense(x: Tensor) -> bool:
    """Whether the elements fill a block of memory without gaps or overlaps, in any order of the axes."""
    covered = 1
    for stride, size in sorted((t, n) for t, n in zip(x.stride(), x.shape, strict=True) if n > 1):
        if stride != covered:
            return False
        covered *= size
    return x.numel() == covered


def flat(x: Tensor) -> Tensor:
    """The elements of a dense tensor in storage order. Shape: any -> `(n,)`, a view."""
    return x.as_strided((x.numel(),), (1,))


def _pieces(scale: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Corresponding pieces of tensors, small enough for the cache if the layouts allow it."""
    x = tensors[0]
    whole = scale.numel() > 1 or x.numel() <= CHUNK
    if whole or not all(is_dense(t) and t.stride() == x.stride() for t in tensors):
        yield tensors
    else:
        yield from zip(*(flat(t).split(CHUNK) for t in tensors), strict=True)


def _matrix_rows(x: Tensor, scale: Tensor) -> int | None:
    """The rows of x as a matrix with one scale per row; None if the fused passes do not support x."""
    if not is_fusible(x) or not is_dense(x):
        return None
    rows = scale.numel()
    outermost = rows == 1 or (scale.shape[:1] == x.shape[:1] == (rows,) and x.stride(0) * rows == x.numel())
    return rows if outermost else None


def _as_matrix(x: Tensor, scale: Tensor, low: int, high: int, rows: int) -> tuple[Tensor, ...]:
    bounds = (_constant(bound, x.device) for bound in (low, high))
    return flat(x.detach()).view(rows, -1), scale.detach().view(rows, 1), *bounds


@cache
def _constant(number: int, device: torch.device) -> Tensor:
    """A bound as a tensor: for Python numbers torch would compile one kernel for each bit-width."""
    with torch.inference_mode(False):  # the cache outlives it
        return torch.tensor(float(number), dtype=torch.float32, device=device)


def _with_layout_of(x: Tensor, matrix: Tensor) -> Tensor:
    """The elements of a matrix, in storage order, in the shape and strides of x."""
    return matrix.as_strided(x.shape, x.stride())

"""The kernels as fused passes, made by `torch.compile`: bit for bit what `kernels.py` computes.

Tensors come here as matrices `(C, n)` in storage order, a row for each scale, so that one compilation serves
all shapes and layouts.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from qat.gradients.masking import with_bits

log = logging.getLogger(__name__)

SMALL = 2**15  # elements below which a compiled call costs more than it saves
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LIMIT = 64  # compilations of one function: dtypes, one row or several, devices
_EXACT = {"eager_numerics.division_rounding": True}  # CUDA's usual division is one bit off here and there
End = Tensor | float


def wide(x: Tensor) -> Tensor:
    """In float32 at least: in bfloat16 18 % of 8-bit codes would differ. Shape: any -> the same."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def quantized(x: Tensor, scale: Tensor, low: End, high: End) -> Tensor:
    """The value alone. Shape: `(C, n)` and scales `(C, 1)` -> `(C, n)`."""
    return _value(_clamp(torch.round(wide(x) / scale), low, high), scale, x)


def forward(
    x: Tensor, scale: Tensor, low: End, high: End, clamps_first: bool, relu: bool
) -> tuple[Tensor, Tensor]:
    """The value, and inside as int8; see `kernels.forward`. Shape: as `quantized`, twice."""
    v = wide(x) / scale
    v = v if clamps_first else torch.round(v)
    limited = _clamp(v, low, high)
    code = torch.round(limited) if clamps_first else limited
    inside = (limited == v) & (x > 0) if relu else limited == v
    # By way of floats: a store of bools is not vectorised.
    return _value(code, scale, x), torch.where(inside, 1.0, 0.0).to(torch.int8)


def learned(g: Tensor, x: Tensor, scale: Tensor, low: End, high: End, relu: bool) -> tuple[Tensor, Tensor]:
    """The gradient of x, and that of the scales. Shape: `(C, n)` and scales `(C, 1)` -> the same two."""
    of_x, share = by_element(g, x, scale, low, high, relu)
    return of_x, share.sum(1, keepdim=True)


def by_element(g: Tensor, x: Tensor, scale: Tensor, low: End, high: End, relu: bool) -> tuple[Tensor, Tensor]:
    """The gradient of x, and what each element adds to that of a learned scale. Shape: any -> the same."""
    v = wide(x) / scale
    limited = _clamp(v, low, high)
    code = torch.round(limited)
    inside = limited == v
    passes = inside & (x > 0) if relu else inside
    return torch.where(passes, g, 0.0), torch.where(inside, code - limited, code) * wide(g)


def _clamp(x: Tensor, low: End, high: End) -> Tensor:
    return torch.clamp(x, low, high)  # type: ignore[arg-type] # both are numbers, or both tensors


def _value(code: Tensor, scale: Tensor, x: Tensor) -> Tensor:
    # Not `+ 0.0`, which the compiler takes away: -0.0 must become 0.0.
    return torch.where(code == 0, 0.0, code * scale).to(x.dtype)


Kernel = Callable[..., Any]
_FLAGS = (False, True)
KERNELS: tuple[tuple[Kernel, tuple[bool, ...]], ...] = (
    (quantized, ()),
    *((forward, (clamps_first, relu)) for clamps_first in _FLAGS for relu in _FLAGS),
    *((learned, (relu,)) for relu in _FLAGS),
    (with_bits, ()),
)
"""What is compiled: a function, and its last arguments, each of whose values is compiled apart."""

_in_use: set[str] = set()  # device types


@cache
def kernel(function: Kernel) -> Kernel:
    """A function of `KERNELS`, compiled."""
    return torch.compile(  # type: ignore[call-overload] # its stub lacks recompile_limit
        function, dynamic=True, fullgraph=True, recompile_limit=_LIMIT, options=_EXACT
    )


@cache
def constant(number: int, device: torch.device) -> Tensor:
    """A grid's end as a tensor: a number would be compiled in, and each width compiled anew."""
    return torch.tensor(float(number), device=device)


def takes(x: Tensor) -> bool:
    """Whether the compiled kernels do this tensor: they are in use, and it is of a kind and size for them."""
    return x.device.type in _in_use and x.numel() >= SMALL and x.dtype in DTYPES


def prepare(function: Kernel, flags: tuple[bool, ...], device: torch.device) -> None:
    """Compile one of `KERNELS` for float32 tensors, or load it from the disk; seconds, the first one most."""
    x = torch.ones(1, SMALL, device=device)
    scale, low, high = torch.ones(1, 1, device=device), constant(-7, device), constant(7, device)
    if function is with_bits:
        kernel(function)(x, x.to(torch.int8))
    else:
        kernel(function)(*([x] if function is learned else []), x, scale, low, high, *flags)


def use(device: torch.device) -> None:
    """From now on large tensors on this kind of device go through the compiled kernels."""
    _in_use.add(device.type)


@contextmanager
def eagerly() -> Iterator[None]:
    """Inside it every tensor goes through the eager kernels."""
    before = set(_in_use)
    _in_use.clear()
    try:
        yield
    finally:
        _in_use.update(before)


def leave(device: torch.device) -> None:
    """Undo `use`."""
    _in_use.discard(device.type)


def compile_kernels(device: torch.device | str = "cpu", track: Callable[..., Any] = iter) -> bool:
    """Compile the fused kernels of quantizers, once in a process, and use them for large tensors.

    Values and gradients are those of the eager kernels to the last bit, but for the gradient of a learned
    scale, whose sum has another order. What was compiled lies on the disk: the first process needs up to
    40 s, later ones some seconds. One line of the log says what is in use.

    Args:
        device: where the model is.
        track: makes an iterator of the list of kernels, and may show how far it has come.

    Returns:
        Whether they are in use: not where there is no compiler, or with QAT_COMPILE=0 in the environment.
    """
    device = torch.device(device)
    if os.environ.get("QAT_COMPILE") == "0":
        log.info("quantizers run eagerly: QAT_COMPILE=0")
        return False
    try:
        for function, flags in track(KERNELS):
            prepare(function, flags, device)
    except Exception as error:  # whatever a missing compiler makes of it
        log.warning("quantizers run eagerly: compiling failed (%s)", str(error).strip().splitlines()[0])
        return False
    use(device)
    log.info("quantizers run through compiled kernels")
    return True

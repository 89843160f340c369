"""Saved bytes of each mode as a network gets deeper, beside checkpointing every sqrt(n) blocks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from qat.measure.memory.case import Case
from qat.measure.memory.modes import MODES, Mode
from qat.measure.memory.saved import saved
from qat.measure.memory.stack import CHANNELS, Stack

IMAGES = 8  # what is saved is proportional to them
SQRT = "float, sqrt(n) segments"
_CURVES = {**MODES, SQRT: MODES["float checkpointed"]}


@dataclass(frozen=True)
class Curve:
    """One mode over the depths; bytes an image.

    Args:
        saved: kept between forward and backward.
        recomputed: what the backward saves anew on top of it, of one checkpointed segment at a time.
        slope: bytes that a block adds to `saved`, for each element of its output.
    """

    saved: list[float]
    recomputed: list[float]
    slope: float


@dataclass(frozen=True)
class Sweep:
    """The curves of all modes over the depths, which ascend."""

    depths: list[int]
    curves: dict[str, Curve]


def check_depths(depths: Sequence[int]) -> None:
    """Refuse depths that give no curve.

    Raises:
        ValueError: fewer than two different ones, or one below 1.
    """
    if len(set(depths)) < 2 or min(depths) < 1:
        given = " ".join(map(str, depths)) or "nothing"
        raise ValueError(f"depth must be two or more numbers of blocks, as in 8 16 32; got {given}")


def sweep(case: Case, depths: Sequence[int], advance: Callable[[str, int], None]) -> Sweep:
    """Count what stacks of residual blocks save, at the bits and image size of a case.

    Args:
        case: gives bits, scale, image and device; its model and batch are not used.
        depths: numbers of blocks.
        advance: called with the mode's name and the depth before each count.

    Source: Chen et al. 2016, "Training deep nets with sublinear memory cost", section 3 (sqrt(n) segments).
    """
    case = replace(case, checkpoint=())  # names of its own model
    depths = sorted(set(depths))
    counts: dict[str, list[float]] = {}
    for name, mode in _CURVES.items():
        counts[name] = []
        for depth in depths:
            advance(name, depth)
            counts[name].append(_count(case, mode, depth, _segment(name, depth)))
    per_block = {name: (each[-1] - each[0]) / (depths[-1] - depths[0]) for name, each in counts.items()}
    elements = CHANNELS * case.image[1] * case.image[2]
    curves = {}
    for name, mode in _CURVES.items():
        # All blocks are equal: one that runs again saves what a block saves where none is checkpointed.
        again = per_block[_unchecked(mode)] if mode.checkpointed else 0.0
        recomputed = [again * _segment(name, depth) for depth in depths]
        curves[name] = Curve(counts[name], recomputed, per_block[name] / elements)
    return Sweep(depths, curves)


def _segment(name: str, depth: int) -> int:
    return math.isqrt(depth) if name == SQRT else 1


def _count(case: Case, mode: Mode, depth: int, segment: int) -> float:
    torch.manual_seed(0)
    model = case.prepare(Stack(depth, case.image[0], segment), mode)
    images = torch.rand(IMAGES, *case.image, device=case.device)
    return saved(model, images, mode.packed) / IMAGES


def _unchecked(mode: Mode) -> str:
    """The mode that is alike but for the checkpointing."""
    alike = (mode.quantized, mode.packed, False)
    return next(n for n, m in MODES.items() if (m.quantized, m.packed, m.checkpointed) == alike)

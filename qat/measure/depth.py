"""Saved bytes as a network gets deeper, beside checkpointing every sqrt(n) blocks."""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from qat.measure.modes import MEMORY_MODES, MODES, name_of
from qat.measure.step import TrainStep
from qat.measure.workload import CLASSES, Workload
from qat.models.resnet import ResidualBlock

CHANNELS = 16
IMAGES = 8  # the saved bytes are proportional to them
SQRT = "float, sqrt(n) segments"
CURVES = {**{name: MODES[name] for name in MEMORY_MODES}, SQRT: MODES["float, checkpointed"]}


def block_stack(depth: int, channels: int, segment: int = 1) -> nn.Sequential:
    """A stem, `depth` equal residual blocks of 16 channels in segments of `segment`, and a linear layer.

    Shape: `(N, C, H, W)` -> `(N, 10)`.
    """
    conv = nn.Conv2d(channels, CHANNELS, 3, padding=1, bias=False)
    stem = nn.Sequential(conv, nn.BatchNorm2d(CHANNELS), nn.ReLU())
    blocks = [ResidualBlock(CHANNELS, CHANNELS, 1) for _ in range(depth)]
    segments = [nn.Sequential(*blocks[start : start + segment]) for start in range(0, depth, segment)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES))
    return nn.Sequential(OrderedDict(stem=stem, blocks=nn.Sequential(*segments), head=head))


@dataclass(frozen=True)
class Curve:
    """One mode over the depths, in bytes per image."""

    saved: list[float]  # kept between forward and backward
    recomputed: list[float]  # saved again by the backward, for one checkpointed segment at a time
    slope: float  # what a block adds to `saved`, per element of its output


@dataclass(frozen=True)
class DepthSweep:
    """The curves of all modes over the depths, which ascend."""

    depths: list[int]
    curves: dict[str, Curve]


def sweep_depths(
    workload: Workload, depths: Sequence[int], announce: Callable[[str, int], None]
) -> DepthSweep:
    """Count what stacks of residual blocks save; `announce` is called with mode and depth before each count.

    The workload gives bits, scale, image and device; its model, blocks and batch are not used.

    Source: Chen et al. 2016, "Training deep nets with sublinear memory cost", section 3 (sqrt(n) segments).
    """
    workload, depths = replace(workload, checkpoint=()), sorted(set(depths))
    images, _ = workload.random_batch(size=IMAGES)
    elements = CHANNELS * workload.image[1] * workload.image[2]
    curves: dict[str, Curve] = {}
    per_block: dict[str, float] = {}
    for name, mode in CURVES.items():
        saved = []
        segments = [math.isqrt(depth) if name == SQRT else 1 for depth in depths]
        for depth, segment in zip(depths, segments, strict=True):
            announce(name, depth)
            torch.manual_seed(0)
            stack = block_stack(depth, workload.image[0], segment)
            step = TrainStep(workload.prepare(stack, mode), mode)
            saved.append(step.saved_bytes(images) / IMAGES)
        per_block[name] = (saved[-1] - saved[0]) / (depths[-1] - depths[0])
        # All blocks are equal: a recomputed one saves what it saves in the mode without checkpointing.
        again = per_block[name_of(replace(mode, checkpointed=False))] if mode.checkpointed else 0.0
        curves[name] = Curve(saved, [again * segment for segment in segments], per_block[name] / elements)
    return DepthSweep(depths, curves)

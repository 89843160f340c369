"""A network in integers: a list of steps, each with the numbers that it needs."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qat.export.onnx.values import Shape

LARGEST_SUM = 2**31 - 1  # an int32 accumulator
LARGEST_EXACT = 2**24  # float32 adds integers up to here without rounding, in any order


@dataclass(frozen=True)
class Step:
    """One step; the fields of `settings` and the names of `arrays` are those that `reader.py` reads.

    Args:
        op: `input`, `conv`, `max_pool`, `sum_pool`, `flatten` or `rescale`.
        layer: the module that it comes from; for a rescaling, the quantizer's.
        inputs: the steps whose integers it takes.
        shape: of what it gives for one sample.
        settings: numbers and lists of numbers.
        arrays: in the order in which the reader takes them.
    """

    op: str
    layer: str
    inputs: tuple[int, ...]
    shape: Shape
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True)
class Accumulator:
    """What is proved of one layer's sums, from its weights and the grid of its input.

    Args:
        layer: by name.
        largest: no sum, and no part of one, is larger in magnitude.
        exact: whether float32 computes them, the bias included, without rounding: nothing exceeds 2^24.
    """

    layer: str
    largest: int
    exact: bool


@dataclass
class Program:
    """The steps in their order, and what is proved of the sums.

    Args:
        steps: the first is the input, the last gives the logits.
        input_scale: value of one code of the input.
        output_scale: value of one integer of the logits.
        accumulators: of every convolution, linear layer and average pool.
        rounded: layers whose multipliers or biases were rounded: they compute nearly what was trained.
        inexact: layers whose residual sum or average float32 may round, so that it differs from integers.
    """

    steps: list[Step] = field(default_factory=list)
    input_scale: float = 0.0
    output_scale: float = 0.0
    accumulators: list[Accumulator] = field(default_factory=list)
    rounded: list[str] = field(default_factory=list)
    inexact: list[str] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """Whether float32 computes the same codes and logits without rounding, so that they must be equal."""
        return not self.rounded and not self.inexact and all(one.exact for one in self.accumulators)

    def add(self, step: Step) -> int:
        """Append a step and return its number."""
        self.steps.append(step)
        return len(self.steps) - 1

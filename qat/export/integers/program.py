"""A network in integers: a list of steps, each with the numbers that it needs."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qat.export.integers.values import Shape

LARGEST_SUM = 2**31 - 1  # of an int32 accumulator
LARGEST_EXACT = 2**24  # up to here float32 adds integers without rounding, in any order

IntArray = NDArray[np.int64]
ReaderInput = tuple[list[dict[str, Any]], dict[str, Any]]  # the steps and arrays that `reader.py` runs


@dataclass(frozen=True)
class Step:
    """One step; the keys of `settings` and `arrays` are those that `reader.py` reads."""

    op: str  # input, conv, max_pool, sum_pool, flatten or rescale
    layer: str  # the module that the step comes from; for a rescaling, the quantizer
    inputs: tuple[int, ...]  # the steps whose integers it takes
    shape: Shape  # of its output for one image
    settings: dict[str, Any] = field(default_factory=dict)  # numbers and lists of numbers
    # In the order in which the reader takes them.
    arrays: dict[str, IntArray] = field(default_factory=dict, repr=False)

    @property
    def packed_weight(self) -> bytes:
        """The weight of a `conv`, as a file holds it."""
        grid = self.settings
        return pack((self.arrays["weight"] - grid["low"]) // grid["step"], grid["bits"])


def pack(codes: IntArray, bits: int) -> bytes:
    """The lowest `bits` of each code in two's complement, one after another, lowest bit first."""
    planes = (codes.reshape(-1, 1) >> np.arange(bits)) & 1
    return np.packbits(planes.astype(np.uint8), bitorder="little").tobytes()


@dataclass(frozen=True)
class Accumulator:
    """What is proved of the sums of one layer, from its weights and the grid of its input."""

    layer: str  # its name
    largest: int  # no sum, and no partial sum, has a larger magnitude
    exact: bool  # whether float32 rounds none, the bias included: it is an integer, and none exceeds 2^24


@dataclass(repr=False)
class Program:
    """The steps in their order, and what is proved of the sums."""

    steps: list[Step] = field(default_factory=list)  # the first is the input, the last gives the logits
    output_scale: float = 0.0  # the value of one integer of the logits
    # One for each convolution, linear layer and average pool.
    accumulators: list[Accumulator] = field(default_factory=list)
    # Layers whose multipliers or biases were rounded; they compute nearly what was trained.
    rounded: list[str] = field(default_factory=list)
    # Layers whose residual sum or average float32 may round, so that it differs from integers.
    inexact: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Program({len(self.steps)} steps, is_exact={self.is_exact})"

    @property
    def is_exact(self) -> bool:
        """Whether float32 rounds nothing, so that the trained model must give the same codes and logits."""
        return not self.rounded and not self.inexact and all(one.exact for one in self.accumulators)

    @property
    def wide(self) -> dict[str, int]:
        """The values without a quantizer that C keeps in 32 bits, by layer: their bytes for one image."""
        fine = [step for step in self.steps if step.layer.endswith("/fine")]
        return {step.layer.removesuffix("/fine"): 4 * int(np.prod(step.shape)) for step in fine}

    def add(self, step: Step) -> int:
        """Append a step and return its number."""
        self.steps.append(step)
        return len(self.steps) - 1

    def for_reader(self) -> ReaderInput:
        """The steps as dicts, and their arrays by `<step>.<name>`."""
        steps = [
            {"op": step.op, "layer": step.layer, "inputs": list(step.inputs), "arrays": list(step.arrays)}
            | step.settings
            for step in self.steps
        ]
        numbered = enumerate(self.steps)
        return steps, {f"{n}.{name}": array for n, step in numbered for name, array in step.arrays.items()}

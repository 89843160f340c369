"""The setups of a comparison: what differs from row to row."""

from dataclasses import dataclass, replace
from typing import Literal

from qat.gradients import RoundingName
from qat.layers import Quantization
from qat.layers.config import FLOAT


@dataclass(frozen=True)
class Setup:
    """One row: the rounding that it trains with, and whether blocks are checkpointed.

    Args:
        rounding: a name of `qat.gradients`, or None for a float network.
        checkpointed: whether the blocks of the network are recomputed in the backward.
        meaning: what a reader is told that it is.
    """

    rounding: RoundingName | None
    checkpointed: bool
    meaning: str

    def quantization(self, config: Quantization) -> Quantization:
        """The configuration of this setup, from the one that all of them share."""
        if self.rounding is None:
            return Quantization(FLOAT, FLOAT, FLOAT, FLOAT)
        return replace(config, rounding=self.rounding)


SetupName = Literal["zero", "ste", "float", "checkpointed"]
SETUPS: dict[str, Setup] = {
    "zero": Setup("zero", checkpointed=False, meaning="round's true gradient, zero"),
    "ste": Setup("ste", checkpointed=False, meaning="straight-through estimator"),
    "float": Setup(None, checkpointed=False, meaning="no quantization"),
    "checkpointed": Setup("ste", checkpointed=True, meaning="straight-through, blocks recomputed"),
}
PAIRS = {"checkpointed": "ste", "ste": "checkpointed"}
"""Setups that must agree to the last bit: they differ in `checkpointed` alone."""

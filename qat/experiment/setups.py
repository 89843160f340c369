"""The setups of a comparison: what differs from row to row."""

from dataclasses import dataclass, replace

from qat.gradients import RoundingName
from qat.layers import Quantization
from qat.layers.config import FLOAT


@dataclass(frozen=True)
class Setup:
    """One row: the rounding that it trains with, what it does about memory, whether scales are learned.

    Args:
        rounding: a name of `qat.gradients`, or None for a float network.
        meaning: what a reader is told that it is.
        checkpointed: whether the blocks of the network are recomputed in the backward.
        packed: whether saved activations are packed.
        learned: whether all scales are trained; else they are those of the configuration.
    """

    rounding: RoundingName | None
    meaning: str
    checkpointed: bool = False
    packed: bool = False
    learned: bool = False

    @property
    def has_bits(self) -> bool:
        """Whether a bit-width makes a difference to it."""
        return self.rounding is not None

    def quantization(self, config: Quantization) -> Quantization:
        """The configuration of this setup, from the one that all of them share."""
        if self.rounding is None:
            return Quantization(FLOAT, FLOAT, FLOAT, FLOAT)
        config = replace(config, rounding=self.rounding)
        if not self.learned:
            return config
        learned = replace(config, weight_observer="max", activation_observer="ema", asymmetric=False)
        return replace(learned, weight_scale="learned", activation_scale="learned")


SETUPS: dict[str, Setup] = {
    "zero": Setup("zero", "round's true gradient, zero"),
    "ste": Setup("ste", "straight-through estimator"),
    "float": Setup(None, "no quantization"),
    "checkpointed": Setup("ste", "straight-through, blocks recomputed", checkpointed=True),
    "packed": Setup("ste", "straight-through, saved as codes", packed=True),
    "packed_checkpointed": Setup(
        "ste", "straight-through, codes saved, rest recomputed", checkpointed=True, packed=True
    ),
    "ewgs": Setup("ewgs", "element-wise gradient scaling"),
    "soft": Setup("soft", "the gradient of a soft staircase"),
    "stochastic": Setup("stochastic", "rounded at random, straight-through"),
    "learned": Setup("ste", "straight-through, learned scales", learned=True),
}
USUAL = ("zero", "ste", "float", "checkpointed")
"""The setups of a comparison that names none."""
TWINS = {
    "checkpointed": "ste",
    "packed": "ste",
    "packed_checkpointed": "ste",
    "ste": "checkpointed",
}
"""The setup that each of these must equal to the last bit: they differ in what they do about memory alone."""

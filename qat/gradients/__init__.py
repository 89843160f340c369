"""Functions whose backward is chosen, not derived."""

from qat.gradients.clamping import clamp
from qat.gradients.rounding import ROUNDINGS, Rounding, RoundingName, round_ste, round_zero

__all__ = ["ROUNDINGS", "Rounding", "RoundingName", "clamp", "round_ste", "round_zero"]

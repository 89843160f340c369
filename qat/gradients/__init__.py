"""Functions with a chosen gradient in place of the derived one."""

from qat.gradients.check import Finding, Verdict, check_gradient
from qat.gradients.clamping import CLAMPS, OutsideName, clamp, clamp_fading, clamp_ste
from qat.gradients.control import (
    clip_gradient_norm,
    clip_gradient_value,
    refuse_second_derivative,
    scale_gradient,
    stop_gradient,
)
from qat.gradients.numpy_bridge import numpy_function
from qat.gradients.rounding import (
    ROUNDINGS,
    Rounding,
    RoundingName,
    one_hot_argmax_ste,
    round_ewgs,
    round_soft,
    round_ste,
    round_stochastic,
    round_zero,
    sign_ste,
)
from qat.gradients.stable import logsumexp, relu_soft
from qat.gradients.straight_through import straight_through

__all__ = [
    "CLAMPS",
    "ROUNDINGS",
    "Finding",
    "OutsideName",
    "Rounding",
    "RoundingName",
    "Verdict",
    "check_gradient",
    "clamp",
    "clamp_fading",
    "clamp_ste",
    "clip_gradient_norm",
    "clip_gradient_value",
    "logsumexp",
    "numpy_function",
    "one_hot_argmax_ste",
    "refuse_second_derivative",
    "relu_soft",
    "round_ewgs",
    "round_soft",
    "round_ste",
    "round_stochastic",
    "round_zero",
    "scale_gradient",
    "sign_ste",
    "stop_gradient",
    "straight_through",
]

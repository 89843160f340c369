"""Quantizers from names: grid, initialized scale and rounding for a weight or an activation."""

from typing import Any, Literal, get_args

from torch import Tensor

from qat.gradients import Rounding, round_ste
from qat.names import unknown_name
from qat.quantizers.asymmetric import AsymmetricScale
from qat.quantizers.dorefa import DorefaScale
from qat.quantizers.grid import IntGrid
from qat.quantizers.learned import LearnedScale
from qat.quantizers.observed import ObservedScale
from qat.quantizers.observers import ObserverName, channel_shape
from qat.quantizers.pact import PactScale
from qat.quantizers.power_of_two import PowerOfTwo
from qat.quantizers.quantizer import Quantizer
from qat.quantizers.scale import Scale

WeightScaleName = Literal["observed", "learned", "dorefa"]
ActivationScaleName = Literal["observed", "learned", "pact"]
WeightObserverName = Literal["max", "percentile", "mse"]
ActivationObserverName = Literal["ema", "percentile", "mse"]

_AVERAGED: dict[str, ObserverName] = {"ema": "ema", "percentile": "percentile_ema", "mse": "mse_ema"}


def weight_quantizer(
    weight: Tensor,
    bits: int,
    *,
    axis: int | None,
    scale: WeightScaleName = "observed",
    observer: WeightObserverName = "max",
    power_of_two: bool = False,
    rounding: Rounding = round_ste,
) -> Quantizer:
    """A quantizer on the signed, symmetric grid, initialized from a weight and on its device.

    At one bit an observed or DoReFa scale is the mean magnitude, whatever the observer.

    Args:
        weight: `(O, I, kH, kW)`, or any shape.
        bits: 1 to 8, or 16.
        axis: the channel axis that has its own scales; None: one scale for the tensor.
        scale: `observed` is measured on the weight at hand, `learned` is trained (LSQ), `dorefa` is fixed
            after a tanh.
        observer: of an observed scale: `max`, `percentile` (99.9) or `mse` (least squared error).
        power_of_two: round the scale to a power of two; with `mse`, to the best one.
        rounding: a rounding of `qat.gradients`, or a user-defined one.

    Raises:
        ValueError: bits, axis, scale or observer is none of these, or an observer is given for a scale that
            is not observed.
    """
    _check_names("weight", scale, get_args(WeightScaleName), observer, get_args(WeightObserverName))
    dims = weight.dim()
    if axis is not None and not -dims <= axis < dims:
        raise ValueError(
            f"axis must be {-dims} to {dims - 1} for a weight of {dims} dimensions, or None; got {axis}"
        )
    grid, shape = IntGrid(bits), channel_shape(weight, axis)
    chosen: Scale
    if scale == "learned":
        chosen = LearnedScale(grid.high, shape, axis)
    elif bits == 1:
        chosen = ObservedScale(grid.high, "mean", shape, axis)
    elif scale == "dorefa":
        chosen = DorefaScale(grid.high, shape, axis)
    else:
        best = "mse_power_of_two" if power_of_two and observer == "mse" else observer
        chosen = ObservedScale(grid.high, best, shape, axis)
    return _initialized(grid, chosen, power_of_two, rounding, weight)


def activation_quantizer(
    sample: Tensor,
    bits: int,
    *,
    signed: bool,
    scale: ActivationScaleName = "observed",
    observer: ActivationObserverName = "ema",
    power_of_two: bool = False,
    asymmetric: bool = False,
    rounding: Rounding = round_ste,
) -> Quantizer:
    """A quantizer with one scale for the tensor, initialized from a sample and on its device.

    Args:
        sample: what the activation may look like, any shape.
        bits: 1 to 8, or 16.
        signed: whether the activation may be negative.
        scale: `observed` is a moving average, `learned` is trained (LSQ), `pact` is a learned clip.
        observer: the statistic that is averaged: `ema` (the maximum), `percentile` (99.9) or `mse` (least
            squared error).
        power_of_two: round the scale to a power of two.
        asymmetric: an unsigned grid with a zero point, from the averages of minimum and maximum.
        rounding: a rounding of `qat.gradients`, or a user-defined one.

    Raises:
        ValueError: bits, scale or observer is none of these; an observer is given for a scale that is not
            observed; `pact` for a signed activation; `asymmetric` without `observed` and `ema`.
    """
    _check_names(
        "activation", scale, get_args(ActivationScaleName), observer, get_args(ActivationObserverName)
    )
    if scale == "pact" and signed:
        raise ValueError(
            "scale='pact' clips at 0, but this activation may be negative; use 'learned' or 'observed'"
        )
    if asymmetric and (scale, observer) != ("observed", "ema"):
        raise ValueError(
            f"asymmetric goes with scale='observed' and observer='ema', got {scale!r} and {observer!r}"
        )
    grid = IntGrid(bits, signed and not asymmetric)
    chosen: Scale
    if asymmetric:
        chosen = AsymmetricScale(grid.high)
    elif scale == "pact":
        chosen = PactScale(grid.high)
    elif scale == "learned":
        chosen = LearnedScale(grid.high)
    else:
        chosen = ObservedScale(grid.high, _AVERAGED[observer])
    return _initialized(grid, chosen, power_of_two, rounding, sample)


def _check_names(of: str, scale: str, scales: Any, observer: str, observers: Any) -> None:
    """Refuse unknown names, and an observer other than the default, the first, for a scale without one."""
    if scale not in scales:
        raise unknown_name(f"{of} scale", scale, scales)
    if observer not in observers:
        raise unknown_name(f"{of} observer", observer, observers)
    if scale != "observed" and observer != observers[0]:
        raise ValueError(
            f"{of} observer must be {observers[0]} with scale={scale!r}, got {observer!r}; only an observed "
            "scale has an observer"
        )


def _initialized(grid: IntGrid, scale: Scale, power_of_two: bool, rounding: Rounding, x: Tensor) -> Quantizer:
    quantizer = Quantizer(grid, PowerOfTwo(scale) if power_of_two else scale, rounding).to(x.device)
    scale.initialize(x.detach())
    return quantizer

"""Quantizers for weights and activations, chosen by names and initialized from a tensor."""

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

    Args:
        weight: `(O, I, kH, kW)`, or any shape.
        bits: 1 to 8, or 16. At one bit every scale that is not `learned` is the mean magnitude.
        axis: the channel axis that has its own scales; None: one scale for the tensor.
        scale: `observed` (measured on the current weight), `learned` (LSQ) or `dorefa` (fixed, after a tanh).
        observer: of an observed scale: `max`, `percentile` (99.9) or `mse` (least squared error).
        power_of_two: round the scale to a power of two; with `mse`, to the best one.
        rounding: a rounding of `qat.gradients`, or a user-defined one.

    Raises:
        ValueError: an argument is none of these, or an observer is given for a scale that is not observed.
    """
    _check_names("weight", scale, get_args(WeightScaleName), observer, get_args(WeightObserverName))
    dims = weight.dim()
    if axis is not None and not -dims <= axis < dims:
        allowed = f"{-dims} to {dims - 1} for a weight of {dims} dimensions, or None"
        raise ValueError(f"axis must be {allowed}; got {axis}")
    grid, shape = IntGrid(bits), channel_shape(weight, axis)
    chosen: Scale
    if scale == "learned":
        chosen = LearnedScale(grid.high, shape, axis, of_weight=True)
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
        sample: an example of the activation, any shape.
        bits: 1 to 8, or 16.
        signed: whether the activation may be negative.
        scale: `observed` (a moving average), `learned` (LSQ) or `pact` (a learned clip).
        observer: the averaged statistic: `ema` (maximum), `percentile` (99.9), `mse` (least squared error).
        power_of_two: round the scale to a power of two.
        asymmetric: use an unsigned grid with a zero point, and averages of minimum and maximum.
        rounding: as for `weight_quantizer`.

    Raises:
        ValueError: as for `weight_quantizer`; `pact` for a signed activation; `asymmetric` without `observed`
            and `ema`.
    """
    names = get_args(ActivationScaleName), get_args(ActivationObserverName)
    _check_names("activation", scale, names[0], observer, names[1])
    if scale == "pact" and signed:
        problem = "scale='pact' clips at 0, but this activation may be negative"
        raise ValueError(f"{problem}; use 'learned' or 'observed'")
    if asymmetric and (scale, observer) != ("observed", "ema"):
        allowed = "scale='observed' and observer='ema'"
        raise ValueError(f"asymmetric goes with {allowed}, got {scale!r} and {observer!r}")
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
    """Refuse unknown names, and for a scale without an observer any but the first, which is the default."""
    if scale not in scales:
        raise unknown_name(f"{of} scale", scale, scales)
    if observer not in observers:
        raise unknown_name(f"{of} observer", observer, observers)
    if scale != "observed" and observer != observers[0]:
        rule = f"{of} observer must be {observers[0]} with scale={scale!r}"
        raise ValueError(f"{rule}, got {observer!r}; only an observed scale has an observer")


def _initialized(grid: IntGrid, scale: Scale, power_of_two: bool, rounding: Rounding, x: Tensor) -> Quantizer:
    quantizer = Quantizer(grid, PowerOfTwo(scale) if power_of_two else scale, rounding).to(x.device)
    scale.initialize(x.detach())
    return quantizer

"""Quantizers for weights and activations, chosen by names and initialized from a tensor."""

from collections.abc import Callable
from typing import Any, Literal, cast, get_args

from torch import Tensor

from qat.gradients import OutsideName, Rounding, round_ste
from qat.quantizers.asymmetric import AsymmetricScale
from qat.quantizers.dorefa import DorefaScale
from qat.quantizers.grid import IntGrid
from qat.quantizers.learned import LearnedScale
from qat.quantizers.observed import ObservedScale
from qat.quantizers.observers import AVERAGING_CONSTANT, Observer, ObserverName, channel_shape
from qat.quantizers.pact import PactScale
from qat.quantizers.power_of_two import PowerOfTwo
from qat.quantizers.quantizer import Quantizer
from qat.quantizers.scale import Scale
from qat.quantizers.user_defined import observer_of, scale_class

WeightScaleName = Literal["observed", "learned", "dorefa"]
ActivationScaleName = Literal["observed", "learned", "pact"]
WeightObserverName = Literal["max", "mean", "percentile", "mse"]
LevelsName = Literal["midtread", "midrise"]
ActivationObserverName = Literal["ema", "percentile", "mse"]

# A name, or a user-defined part: its import path, or the class or function `(x, axis, high) -> magnitude`.
Chosen = str | Callable[..., Any]
_SCALES = {"weight": get_args(WeightScaleName), "activation": get_args(ActivationScaleName)}
_OBSERVERS = {"weight": get_args(WeightObserverName), "activation": get_args(ActivationObserverName)}
_AXES = {"weight": (None, 0), "activation": (None,)}
_AVERAGED: dict[str, ObserverName] = {"ema": "ema", "percentile": "percentile_ema", "mse": "mse_ema"}


def weight_quantizer(
    weight: Tensor,
    bits: int,
    *,
    axis: int | None,
    scale: Chosen = "observed",
    observer: Chosen = "max",
    power_of_two: bool = False,
    rounding: Rounding = round_ste,
    levels: LevelsName = "midtread",
    outside: OutsideName | None = None,
) -> Quantizer:
    """A quantizer on a signed grid that is symmetric about 0, initialized from a weight and on its device.

    Args:
        weight: `(O, I, kH, kW)`, or any shape.
        bits: 1 to 8, or 16. At one bit every built-in scale that is not `learned` is the mean magnitude.
        axis: the channel axis that has its own scales; None: one scale for the tensor.
        scale: `observed` (measured on the current weight), `learned` (LSQ) or `dorefa` (fixed, after a tanh);
            or a user-defined one, a subclass of `Scale` or its import path, which is built as
            `MyScale(high, shape=(), axis=None)`.
        observer: of an observed scale: `max`, `mean` (times the factor that suits normal numbers),
            `percentile` (99.9) or `mse` (least squared error); or a user-defined one, a function `(x, axis,
            high) -> magnitude` or its import path.
        power_of_two: round the scale to a power of two; with `mse`, to the best one.
        rounding: a rounding of `qat.gradients`, or a user-defined one.
        levels: `midtread`, codes with a zero (2 bits: -1, 0, 1), or `midrise`, odd codes without one (2 bits:
            -3, -1, 1, 3). One bit is always midrise.
        outside: the gradient beyond the outer codes, as for `Quantizer`; None: `passed` on a midrise grid
            with a built-in scale that does not learn, else `masked`.

    Raises:
        ValueError: an argument is none of these, or an observer is given for a scale that is not observed.
    """
    own_scale, own_observer = _resolved("weight", scale, observer)
    dims = weight.dim()
    if axis is not None and not -dims <= axis < dims:
        allowed = f"{-dims} to {dims - 1} for a weight of {dims} dimensions, or None"
        raise ValueError(f"axis must be {allowed}; got {axis}")
    if observer == "mean" and bits > 8:
        raise ValueError(f"observer must be another than mean with more than 8 bits, got {bits}; choose max")
    grid, shape = IntGrid(bits, midrise=levels == "midrise"), channel_shape(weight, axis)
    chosen: Scale
    if own_scale:
        chosen = own_scale(grid.high, shape=shape, axis=axis)  # type: ignore[call-arg]
    elif own_observer:
        chosen = ObservedScale(grid.high, own_observer, shape, axis)
    elif scale == "learned":
        chosen = LearnedScale(grid.high, shape, axis, of_weight=True, step=grid.step)
    elif bits == 1:
        chosen = ObservedScale(grid.high, "mean", shape, axis, grid.step)
    elif scale == "dorefa":
        chosen = DorefaScale(grid.high, shape, axis)
    else:
        best = "mse_power_of_two" if power_of_two and observer == "mse" else observer
        chosen = ObservedScale(grid.high, cast(ObserverName, best), shape, axis, grid.step)
    # Many weights lie beyond the outer codes of a midrise grid; without a gradient they would stay there.
    passes = outside or ("passed" if grid.midrise and not own_scale and scale != "learned" else "masked")
    return _initialized(grid, chosen, power_of_two, rounding, weight, passes)


def activation_quantizer(
    sample: Tensor,
    bits: int,
    *,
    signed: bool,
    scale: Chosen = "observed",
    observer: Chosen = "ema",
    power_of_two: bool = False,
    asymmetric: bool = False,
    rounding: Rounding = round_ste,
    outside: OutsideName = "masked",
) -> Quantizer:
    """A quantizer with one scale for the tensor, initialized from a sample and on its device.

    Args:
        sample: an example of the activation, any shape.
        bits: 1 to 8, or 16.
        signed: whether the activation may be negative.
        scale: `observed` (a moving average), `learned` (LSQ), `pact` (a learned clip), or a user-defined one
            as for `weight_quantizer`.
        observer: the averaged statistic: `ema` (maximum), `percentile` (99.9), `mse` (least squared error),
            or a user-defined one.
        power_of_two: round the scale to a power of two.
        asymmetric: use an unsigned grid with a zero point, and averages of minimum and maximum.
        rounding: as for `weight_quantizer`.
        outside: the gradient beyond the outer codes, as for `Quantizer`.

    Raises:
        ValueError: as for `weight_quantizer`; `pact` for a signed activation; `asymmetric` without `observed`
            and `ema`; `outside` with `pact` or `asymmetric`, which define that gradient themselves.
    """
    own_scale, own_observer = _resolved("activation", scale, observer)
    if scale == "pact" and signed:
        problem = "scale='pact' clips at 0, but this activation may be negative"
        raise ValueError(f"{problem}; use 'learned' or 'observed'")
    if asymmetric and (scale, observer) != ("observed", "ema"):
        allowed = "scale='observed' and observer='ema'"
        raise ValueError(f"asymmetric goes with {allowed}, got {scale!r} and {observer!r}")
    if outside != "masked" and (asymmetric or scale == "pact"):
        which = "asymmetric" if asymmetric else "scale='pact'"
        raise ValueError(f"outside must be 'masked' with {which}, got {outside!r}; choose another scale")
    grid = IntGrid(bits, signed and not asymmetric)
    chosen: Scale
    if asymmetric:
        chosen = AsymmetricScale(grid.high)
    elif own_scale:
        chosen = own_scale(grid.high)
    elif own_observer:
        chosen = ObservedScale(grid.high, own_observer)
    elif scale == "pact":
        chosen = PactScale(grid.high)
    elif scale == "learned":
        chosen = LearnedScale(grid.high)
    else:
        chosen = ObservedScale(grid.high, _AVERAGED[cast(str, observer)])
    return _initialized(grid, chosen, power_of_two, rounding, sample, outside)


def user_defined(
    of: str, scale: Any, observer: Any, argument: str = "{of} {part}"
) -> tuple[type[Scale] | None, Observer | None]:
    """The user-defined scale and observer of weights or activations; None where they are built in.

    Args:
        of: `weight` or `activation`.
        scale, observer: as for `weight_quantizer` and `activation_quantizer`.
        argument: what the messages call them.

    Raises:
        ValueError: a name is unknown, or a user-defined part breaks its contract.
    """
    scales, observers, axes = _SCALES[of], _OBSERVERS[of], _AXES[of]
    names = {part: argument.format(of=of, part=part) for part in ("scale", "observer")}
    constant = AVERAGING_CONSTANT if of == "activation" else None
    return (
        None if scale in scales else scale_class(names["scale"], scale, scales, axes),
        None
        if observer in observers
        else observer_of(names["observer"], observer, observers, axes, constant),
    )


def _resolved(of: str, scale: Any, observer: Any) -> tuple[type[Scale] | None, Observer | None]:
    """As `user_defined`; refuses any observer but the default for a scale without an observer."""
    own, default = user_defined(of, scale, observer), _OBSERVERS[of][0]
    if scale != "observed" and observer != default:
        rule = f"{of} observer must be {default} with scale={scale!r}"
        raise ValueError(f"{rule}, got {observer!r}; only an observed scale has an observer")
    return own


def _initialized(
    grid: IntGrid, scale: Scale, power_of_two: bool, rounding: Rounding, x: Tensor, outside: OutsideName
) -> Quantizer:
    chosen = PowerOfTwo(scale) if power_of_two else scale
    quantizer = Quantizer(grid, chosen, rounding, outside).to(x.device)
    scale.initialize(x.detach())
    return quantizer

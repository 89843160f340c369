"""The configuration of a quantized model, which is also the YAML block."""

from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args, get_type_hints

import torch
from torch import Tensor

from qat.gradients import CLAMPS, ROUNDINGS, OutsideName, Rounding, RoundingName
from qat.layers.private_random import PrivateRandom
from qat.names import imported, is_import_path, match_names, one_line, stored_name, unknown_name
from qat.quantizers import (
    ActivationObserverName,
    ActivationScaleName,
    LevelsName,
    Scale,
    WeightObserverName,
    WeightScaleName,
)
from qat.quantizers.build import user_defined
from qat.quantizers.grid import WIDTHS, check_bits

FLOAT = 32
CONFIGURABLE_WIDTHS = (*WIDTHS, FLOAT)
OF_WEIGHTS = (
    "weight_bits",
    "weight_scale",
    "weight_observer",
    "weight_levels",
    "weight_outside",
    "per_channel",
)
OF_ACTIVATIONS = (
    "activation_bits",
    "activation_scale",
    "activation_observer",
    "activation_outside",
    "asymmetric",
)
OF_BOTH = ("rounding", "power_of_two")
OVERRIDABLE = (*OF_WEIGHTS, *OF_ACTIVATIONS, *OF_BOTH)
# The parts that may be user-defined, and the names of those of this package.
PARTS: dict[str, tuple[str, ...]] = {
    "rounding": get_args(RoundingName),
    "weight_scale": get_args(WeightScaleName),
    "activation_scale": get_args(ActivationScaleName),
    "weight_observer": get_args(WeightObserverName),
    "activation_observer": get_args(ActivationObserverName),
}


@dataclass(frozen=True)
class Quantization:
    """Bit-widths, scales and gradients of a quantized model.

    Roundings, scales and observers may be user-defined: an import path such as `my_module.my_rounding`, or in
    Python the function or class itself. A rounding is a function that returns a tensor for a tensor. A scale
    is a subclass of `qat.quantizers.Scale` that is built as `MyScale(high, shape=(), axis=None)`. An observer
    is a function `(x, axis, high) -> magnitude of the highest code`, as in `qat.quantizers.observers`; that
    of a weight is measured on the current weight, that of an activation is averaged over batches.

    Args:
        weight_bits: bits of weights; 1 to 8, 16, or 32 for float.
        activation_bits: bits of the inputs of convolution and linear layers; the same values are possible.
        first_last_bits: bits of the weights of the first and the last layer.
        input_bits: bits of the network's input.
        rounding: `zero` (the true gradient), `ste` (straight-through), `ewgs`, `soft`, `stochastic`, or
            user-defined.
        weight_scale: how the scale of a weight is found: `observed` from the current weight, `learned` by
            gradient descent (LSQ), `dorefa`, which first transforms the weight by tanh, or user-defined. A
            learned scale of 8 bits starts with about 49 of 255 codes in use, so where the first and the last
            layer (or the network's input) have 8 bits or more, their scales are observed instead of learned,
            unless `layers` names them.
        activation_scale: how the scale of an activation is found: `observed`, a moving average; `learned`
            (LSQ); `pact`, a learned upper limit; or user-defined. PACT needs an unsigned activation: if an
            activation may be negative (the network's input with `input_signed`, a linear bottleneck, after
            SiLU), the scale is `learned` instead.
        weight_observer: the statistic of an observed scale: `max`; `mean`, times the factor that suits normal
            numbers; `percentile` (99.9); `mse`, the least squared error; or user-defined. If the scale is not
            observed, it must be `max`.
        activation_observer: the same for activations, as a moving average over batches: `ema` (of the largest
            magnitude), `percentile`, `mse` or user-defined. If the scale is not observed, it must be `ema`.
        weight_levels: the levels of weights of 2 to 4 bits: `midtread`, with a zero (2 bits: -1, 0, 1 times
            the scale), or `midrise`, all codes and no zero (2 bits: -3, -1, 1, 3 times the scale). Weights of
            more bits have a zero, those of one bit none.
        weight_outside, activation_outside: the gradient beyond the outer codes, as a multiple of the
            rounding's: `masked`, 0; `passed`, 1; `fading`, `exp(-d)` at the distance d, in codes, from the
            outermost one. For weights null is `passed` with `midrise` and one bit where the scale does not
            learn, else `masked`. With `pact` and `asymmetric` it must be `masked`.
        power_of_two: whether all scales are powers of two.
        asymmetric: whether activations that may be negative use an unsigned grid with a zero point. This
            needs `activation_scale: observed` and `activation_observer: ema`.
        per_channel: whether each output channel of a weight has its own scale, instead of one for the weight.
        input_signed: whether the network's input may be negative; images in [0, 1] are not.
        deployable: a preset with which integer arithmetic reproduces the model bit for bit in eval mode. All
            scales are powers of two (for weights, the one of least squared error if `weight_observer` is
            `max`). Each BatchNorm is folded into the layer before it, before the weight is quantized. Biases
            are rounded to the unit of the layer's sums. Activations that are read only by a pool or a sum
            have at least 8 bits. It needs 1 to 8 bits, Conv2d and Linear layers, and scales that are
            observed, learned or `pact`, and a form in integers for each operation. `onnx` is the same for
            ONNX files alone, where each operation is possible; see docs/export.md.
        layers: overrides by layer, `{glob over module names: {argument: value}}`, for `weight_bits`,
            `activation_bits`, `rounding`, `per_channel`, `power_of_two`, `asymmetric`, and the scales and
            observers. The first glob that matches a layer is used, so put more specific globs first.

    Raises:
        ValueError: bits that are not one of these integers, a flag that is not true or false, a rounding,
            scale or observer that is unknown or breaks its contract, an observer that the scale does not use,
            an unknown key or a wrong value under `layers`.
    """

    weight_bits: int = 4
    activation_bits: int = 4
    first_last_bits: int = 8
    input_bits: int = 8
    # Any, not a callable, for which jsonargparse runs whatever a `class_path` in a YAML file names.
    rounding: RoundingName | Any = "ste"
    weight_scale: WeightScaleName | Any = "observed"
    activation_scale: ActivationScaleName | Any = "observed"
    weight_observer: WeightObserverName | Any = "max"
    activation_observer: ActivationObserverName | Any = "ema"
    weight_levels: LevelsName = "midtread"
    weight_outside: OutsideName | None = None
    activation_outside: OutsideName = "masked"
    power_of_two: bool = False
    asymmetric: bool = False
    per_channel: bool = True
    input_signed: bool = False
    deployable: bool | Literal["onnx"] = False
    layers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if kind is int:
                check_bits(name, value, CONFIGURABLE_WIDTHS)
                if self.deployable and value > 8:
                    rule = f"{name} must be 1 to 8 with deployable, whose sums stay below 2^24"
                    raise ValueError(f"{rule}; got {value}")
            elif name == "deployable" and not isinstance(value, bool) and value != "onnx":
                raise ValueError(f"deployable must be true, false or onnx; got {value!r}")
            elif kind is bool and not isinstance(value, bool):
                raise ValueError(f"{name} must be true or false; got {value!r}")
            elif name in PARTS and isinstance(value, str):
                object.__setattr__(self, name, stored_name(name, value, {}))  # in one spelling
        for kind, default in (("weight", "max"), ("activation", "ema")):
            scale, observer = getattr(self, f"{kind}_scale"), getattr(self, f"{kind}_observer")
            own, _ = user_defined(kind, scale, observer, "{of}_{part}")
            if own and self.deployable and not _is_only_a_scale(own):
                rule = f"{kind}_scale must only scale with deployable, without a transform or a zero point"
                raise ValueError(f"{rule}; got {own.__name__}")
            if scale != "observed" and observer != default:
                raise ValueError(
                    f"{kind}_observer must be {default!r} where {kind}_scale is {scale!r}, which uses no "
                    f"observer; got {observer!r}"
                )
        self._check_names()
        if self.asymmetric and (self.activation_scale, self.activation_observer) != ("observed", "ema"):
            raise ValueError(
                "asymmetric needs activation_scale 'observed' and activation_observer 'ema'; got "
                f"{self.activation_scale!r} and {self.activation_observer!r}"
            )
        if self.deployable and self.weight_scale == "dorefa":
            raise ValueError("weight_scale must be observed or learned with deployable, got 'dorefa'")
        if self.deployable and self.asymmetric:
            raise ValueError("asymmetric must be false with deployable, whose grids have no zero point")
        _try_rounding(self.rounding_function)
        if not isinstance(self.layers, dict) or not all(isinstance(pattern, str) for pattern in self.layers):
            rule = "layers must map globs to overrides, as in {fc: {...}}"
            raise ValueError(f"{rule}; got {self.layers!r}")
        for pattern, override in self.layers.items():
            self._override(pattern, override)

    def _check_names(self) -> None:
        """Refuse levels and gradients that are unknown or that a scale cannot have."""
        known = {"weight_levels": get_args(LevelsName), "activation_outside": CLAMPS}
        known |= {"weight_outside": CLAMPS} if self.weight_outside is not None else {}
        for argument, names in known.items():
            if getattr(self, argument) not in names:
                raise unknown_name(argument, getattr(self, argument), names)
        defines = "asymmetric" if self.asymmetric else "activation_scale pact"
        if self.activation_outside != "masked" and (self.asymmetric or self.activation_scale == "pact"):
            rule = f"activation_outside must be 'masked' with {defines}, which defines that gradient itself"
            raise ValueError(f"{rule}; got {self.activation_outside!r}")

    @property
    def rounding_function(self) -> Rounding:
        """The rounding as a function, also where it was given by name or import path."""
        if isinstance(self.rounding, str):
            if self.rounding not in ROUNDINGS and not is_import_path(self.rounding):
                raise unknown_name("rounding", self.rounding, ROUNDINGS)
            return ROUNDINGS.get(self.rounding) or imported("rounding", self.rounding)
        rounding: Rounding = self.rounding
        return rounding

    @property
    def input_options(self) -> tuple[Any, ...]:
        """The options of an input's quantizer; layers that agree in them can share a quantizer."""
        return tuple(getattr(self, name) for name in (*OF_ACTIVATIONS, *OF_BOTH))

    def expand_preset(self) -> "Quantization":
        """The same configuration with the options that `deployable` sets, and without `deployable`."""
        if not self.deployable:
            return self
        # Rounded to a power of two, a `max` scale may clip 29 % of the largest weight: 1 point at 8 bits.
        by_max = (self.weight_scale, self.weight_observer) == ("observed", "max")
        observer: WeightObserverName = "mse" if by_max else self.weight_observer
        return replace(self, deployable=False, power_of_two=True, weight_observer=observer)

    def overridden_input_options(self, name: str) -> dict[str, Any]:
        """Those overrides under `layers` that apply to the input quantizer of the named layer."""
        return {key: value for key, value in self.override_of(name).items() if key not in OF_WEIGHTS}

    def override_of(self, name: str) -> dict[str, Any]:
        """The overrides under `layers` that apply to the named layer."""
        return next((own for glob, own in self.layers.items() if fnmatchcase(name, glob)), {})

    def with_observed(self, operand: Literal["weight", "activation"]) -> "Quantization":
        """The same configuration with an observed scale in place of a learned one for one operand."""
        if getattr(self, f"{operand}_scale") != "learned":
            return self
        # A power of two must be that of least error: one near the maximum may clip.
        observer = "mse" if self.power_of_two and operand == "weight" else None
        observed = {f"{operand}_scale": "observed"} | ({"weight_observer": observer} if observer else {})
        return replace(self, **observed)  # type: ignore[arg-type]

    def resolve(self, layers: list[str], activations: list[str]) -> dict[str, "Quantization"]:
        """The configuration of each layer and activation that `layers` overrides, its preset expanded.

        In it `first_last_bits` and `input_bits` follow an overridden `weight_bits` and `activation_bits`.
        Overrides of weights match `layers` alone. A pattern that has no effect raises ValueError.
        """
        resolved: dict[str, Quantization] = {}
        for pattern, override in self.layers.items():
            names = layers if override.keys() <= set(OF_WEIGHTS) else [*layers, *activations]
            found = match_names(pattern, names, "layers pattern")
            if resolved.keys() >= set(found):
                raise ValueError(
                    f"layers[{pattern!r}] has no effect: earlier patterns match all of its layers: "
                    f"{', '.join(found)}; put it first, or leave it out"
                )
            for name in found:
                resolved.setdefault(name, self._override(pattern, override).expand_preset())
        return resolved

    def plain_parts(self) -> dict[str, Any]:
        """The arguments with user-defined parts by their import paths, also under `layers`, for a file.

        Raises ValueError for a part that no import path finds again.
        """
        plain = asdict(self)
        for options in (plain, *plain["layers"].values()):
            for name in PARTS:
                if name in options:
                    known = ROUNDINGS if name == "rounding" else {}
                    options[name] = stored_name(name, options[name], known)
        return plain

    def _override(self, pattern: str, override: Any) -> "Quantization":
        if not isinstance(override, dict):
            rule = f"layers[{pattern!r}] must be a mapping like {{weight_bits: 8}}"
            raise ValueError(f"{rule}; got {override!r}")
        for key in override:
            if key not in OVERRIDABLE:
                raise unknown_name(f"key in layers[{pattern!r}]", key, OVERRIDABLE)
        if self.deployable and not override.get("power_of_two", True):
            raise ValueError(f"layers[{pattern!r}]: power_of_two must be true with deployable, got false")
        implied = {"weight_bits": "first_last_bits", "activation_bits": "input_bits"}
        wider = {implied[key]: bits for key, bits in override.items() if key in implied}
        try:
            return replace(self, layers={}, **override, **wider)
        except ValueError as error:
            raise ValueError(f"layers[{pattern!r}]: {error}") from None


def _is_only_a_scale(scale: type[Scale]) -> bool:
    return scale.transform is Scale.transform and scale.zero_point is Scale.zero_point


def _try_rounding(rounding: Any) -> None:
    """Refuse what is not a function that returns a tensor for a tensor, by a call."""
    if not callable(rounding) or isinstance(rounding, type):
        rule = "rounding must be a name, a function or its import path my_module.my_rounding"
        raise ValueError(f"{rule}; for an autograd Function give its apply; got {rounding!r}")
    x = torch.tensor([0.25, 1.75])
    try:
        with PrivateRandom():
            y = rounding(x)
    except (Exception, SystemExit) as error:  # a user-defined function may raise anything
        y = error
    if not isinstance(y, Tensor) or (y.shape, y.dtype) != (x.shape, x.dtype):
        name = getattr(rounding, "__name__", rounding)
        rule = "rounding must return a tensor for a tensor, of its shape and dtype"
        raise ValueError(f"{rule}; {name} returned {one_line(repr(y))}")

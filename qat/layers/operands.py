"""The quantizers of a layer's operands: of its weight, and of its input or an activation's output."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from qat.layers.config import FLOAT, OF_BOTH, OVERRIDABLE, Quantization
from qat.names import unknown_name
from qat.quantizers import activation_quantizer, weight_quantizer
from qat.quantizers.grid import MIDRISE_WIDTHS

OPTIONS = (*OVERRIDABLE, "input_signed")  # of a layer that is made with its bits


def quantizer_of_weight(config: Quantization, bits: int, weight: Tensor, axis: int) -> nn.Module:
    """The quantizer of a weight, started from that weight; `nn.Identity()` for 32 bits."""
    if bits == FLOAT:
        return nn.Identity()
    with weight.device:
        return weight_quantizer(
            weight,
            bits,
            axis=axis if config.per_channel else None,
            scale=config.weight_scale,
            observer=config.weight_observer,
            power_of_two=config.power_of_two,
            rounding=config.rounding_function,
            levels=config.weight_levels if bits in MIDRISE_WIDTHS else "midtread",
            outside=config.weight_outside,
        )


def quantizer_of_activation(
    config: Quantization, bits: int, sample: Tensor, signed: bool, name: str
) -> nn.Module:
    """The quantizer of an activation, started from a sample of it; `nn.Identity()` for 32 bits.

    `name` is that of the layer, for the warning about a scale that nothing has set.
    """
    if bits == FLOAT:
        return nn.Identity()
    scale = config.activation_scale
    with sample.device:
        quantizer = activation_quantizer(
            sample,
            bits,
            signed=signed,
            scale="learned" if scale == "pact" and signed else scale,
            observer=config.activation_observer,
            power_of_two=config.power_of_two,
            asymmetric=config.asymmetric and signed,
            rounding=config.rounding_function,
            outside=config.activation_outside,
        )
    if sample.is_meta or not sample.any():
        quantizer.scale.unset = name  # zeros say nothing of the scale
    return quantizer


def split_options(
    module: nn.Module, kwargs: Mapping[str, Any]
) -> tuple[Quantization, dict[str, Any], dict[str, Any]]:
    """The keyword arguments of a layer: its configuration, the options that were given, and those of torch.

    Bits that are not given, or None, are 32. Raises ValueError for a wrong option, or an argument that
    neither the module nor the module of torch that it derives from has.
    """
    torchs = next(kind for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn"))
    known = [*OPTIONS, *inspect.signature(torchs).parameters]
    for name in kwargs:
        if name not in known:
            raise unknown_name(f"argument of {type(module).__name__}", name, known[: len(OPTIONS)])
    given = {name: value for name, value in kwargs.items() if name in OPTIONS}
    of_torch = {name: value for name, value in kwargs.items() if name not in OPTIONS}
    bits = {
        name: FLOAT if given.get(name) is None else given[name] for name in ("weight_bits", "activation_bits")
    }
    used = given if all(width == FLOAT for width in bits.values()) else {}
    if idle := [name for name in OF_BOTH if name in used]:
        raise ValueError(f"{idle[0]} has no effect without bits: nothing is quantized")
    return Quantization(**{"input_signed": True} | given | bits), given, of_torch

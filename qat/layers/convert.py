"""Convert a float model: every convolution and linear layer sees both operands on a grid."""

import warnings
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from qat.layers.activation import QUANT_ACTIVATIONS
from qat.layers.config import FLOAT, Quantization
from qat.layers.conv import QuantConv1d, QuantConv2d, QuantConvTranspose2d
from qat.layers.deployable import find_folds, make_deployable
from qat.layers.example import arguments, check_model, tensors
from qat.layers.layer import QuantLayer
from qat.layers.linear import QuantLinear
from qat.layers.sites import (
    Site,
    activation_sites,
    quantized_activations,
    reader_sites,
    readers_by_source,
)
from qat.layers.trace import Trace, trace
from qat.quantizers import Quantizer, WeightObserverName, activation_quantizer, weight_quantizer

QUANT_LAYERS: dict[type[nn.Module], type[QuantLayer]] = {
    nn.Conv1d: QuantConv1d,
    nn.Conv2d: QuantConv2d,
    nn.ConvTranspose2d: QuantConvTranspose2d,
    nn.Linear: QuantLinear,
}


def quantize(model: nn.Module, config: Quantization, example: Tensor | tuple[Any, ...]) -> nn.Module:
    """Put quantizers into a model, in place, and return it.

    Rule: every convolution and linear layer sees both operands on a grid. An activation module that feeds
    one (through max-pooling, views, zero padding or dropout, too) is quantized once, for all its readers;
    where the input does not come from one, the layer quantizes its own input. What is never negative by
    its structure (after ReLU, sigmoid, softmax) gets an unsigned grid. Names and keys of the model stay;
    those of the quantizers come to them.

    The example runs once, in training mode but without dropout, to see what feeds what and to give the
    scales a first value; mode, buffers and random state are as before. Zeros do where only the structure
    matters: before a state is loaded, or before training, whose first batch sets the scales.

    Args:
        model: any module; layers that are not plain `nn.Conv1d`, `nn.Conv2d`, `nn.ConvTranspose2d` or
            `nn.Linear` stay float, and so do matrix products outside of such layers, in attention for
            one. `summary` lists both.
        config: bits, scales, rounding, overrides by layer; `deployable` folds BatchNorm, too.
        example: `(N, C, H, W)` with N at least 2 (BatchNorm needs it), or a tuple of arguments.

    Raises:
        ValueError: the model is quantized already, is lazy or TorchScript, or has nothing to quantize, the
            example holds no batch of 2 samples or does not run through the model, inference mode is on, a
            pattern in `config.layers` matches no layer or comes after others that match all of its layers, or
            one asks for a float input of a layer that shares a quantized activation with others; with
            `deployable` a BatchNorm does not fold or a layer is not of a kind that integers reproduce.

    Warns:
        UserWarning: a convolution or linear layer stays float, because it did not run as a plain one; or the
            example is negative somewhere although `input_signed` is False.
    """
    check_model(model)
    checkpointed = [name for name, part in model.named_modules() if hasattr(part, "is_checkpointed")]
    if checkpointed:
        raise ValueError(f"{checkpointed[0]} is checkpointed; call quantize before checkpoint_blocks")
    if not isinstance(config, Quantization):
        raise ValueError(f"config must be a Quantization, got {config!s:.80}")
    if any(isinstance(module, Quantizer) for module in model.modules()):
        raise ValueError("the model is quantized already; quantize a fresh float model instead")
    if torch.is_inference_mode_enabled():
        raise ValueError("quantize cannot run in inference mode, whose tensors do not train; leave it first")
    args = arguments(example, at_least=2)
    _warn_of_signs(args, config)
    plain = Trace(lambda m: _is_plain(m, QUANT_LAYERS), lambda m: _is_plain(m, QUANT_ACTIVATIONS))
    seen = trace(model, args, config.input_signed, training=True, seen=plain)
    if not seen.readers:
        raise ValueError(f"the model ran no plain {_kinds()}: there is nothing to quantize")
    _warn_of_float_layers(model, seen)
    resolved = config.resolve(list(seen.readers), list(quantized_activations(seen, config)))
    activations = list(activation_sites(seen, config, resolved))
    readers = list(reader_sites(seen, config, resolved, activations))  # before anything is changed: it raises
    folds = find_folds(model, args) if config.deployable else {}
    for site in activations:
        _quantize_activation(model.get_submodule(site.name), site, seen.activations[site.name].samples)
    for site in readers:
        _quantize_layer(model.get_submodule(site.name), site, seen.readers[site.name].samples)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and isinstance(module.linear1, QuantLayer):
            module.activation_relu_or_gelu = 0  # or its fast path in eval mode reads the weights themselves
    if config.deployable:
        make_deployable(model, folds, _sources(model, seen))
    return model


def _is_plain(module: nn.Module, kinds: Collection[type[nn.Module]]) -> bool:
    return type(module) in kinds and "forward" not in vars(module)


def _warn_of_signs(args: tuple[Any, ...], config: Quantization) -> None:
    if not config.input_signed and any((x < 0).any() for x in tensors(args)):
        warnings.warn(
            "the example holds negative values, which input_signed=False clips to 0; set it to True",
            stacklevel=3,
        )


def _warn_of_float_layers(model: nn.Module, seen: Trace) -> None:
    kinds = (nn.modules.conv._ConvNd, nn.Linear)
    left = [n for n, m in model.named_modules() if isinstance(m, kinds) and n not in seen.readers]
    if left:
        warnings.warn(
            f"left float, as they did not run as a plain one of {_kinds()}: {', '.join(left)}", stacklevel=3
        )


def _kinds() -> str:
    return ", ".join(f"nn.{kind.__name__}" for kind in QUANT_LAYERS)


# A module changes its class, not its identity: tied weights, hooks and other references to it stay right.
def _quantize_activation(module: nn.Module, site: Site, samples: list[Tensor]) -> None:
    quantizer = _activation_quantizer(site, samples)
    if isinstance(quantizer, Quantizer):
        module.__class__ = QUANT_ACTIVATIONS[type(module)]
        module.quantizer = quantizer.train(module.training)


def _quantize_layer(module: nn.Module, site: Site, samples: list[Tensor]) -> None:
    kind = QUANT_LAYERS[type(module)]
    of_weight = _weight_quantizer(site, module, kind.channel_axis)
    of_input = _activation_quantizer(site, samples)
    if isinstance(of_weight, Quantizer) or isinstance(of_input, Quantizer):
        module.__class__ = kind
        module.weight_quantizer = of_weight.train(module.training)
        module.input_quantizer = of_input.train(module.training)


def _sources(model: nn.Module, seen: Trace) -> dict[str, Quantizer]:
    """The quantizer on whose grid each layer's input lies: its own, or that of the activation before."""
    shared = {name: source for source, names in readers_by_source(seen).items() for name in names}
    sources = {}
    for name in seen.readers:
        own = model.get_submodule(name).input_quantizer
        found = own if isinstance(own, Quantizer) else model.get_submodule(shared[name]).quantizer
        assert isinstance(found, Quantizer)
        sources[name] = found
    return sources


def _weight_quantizer(site: Site, module: nn.Module, channel_axis: int) -> nn.Module:
    if site.weight_bits == FLOAT:
        return nn.Identity()
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight_quantizer(
        weight,
        site.weight_bits,
        axis=channel_axis if site.config.per_channel else None,
        scale=site.config.weight_scale,
        observer=_weight_observer(site.config),
        power_of_two=site.config.power_of_two or site.config.deployable,
        rounding=site.config.rounding_function,
    )


def _weight_observer(config: Quantization) -> WeightObserverName:
    """A scale rounded to the nearest power of two may clip 29 % of the largest weight: 1 point at 8 bits."""
    measured = config.weight_scale == "observed" and config.weight_observer == "max"
    return "mse" if config.deployable and measured else config.weight_observer


def _activation_quantizer(site: Site, samples: list[Tensor]) -> nn.Module:
    if site.input_bits == FLOAT:
        return nn.Identity()
    scale = site.config.activation_scale
    return activation_quantizer(
        # A layer that ran several times starts from all that it read.
        samples[0] if len(samples) == 1 else torch.cat([sample.flatten() for sample in samples]),
        site.input_bits,
        signed=site.signed,
        scale="learned" if scale == "pact" and site.signed else scale,
        observer=site.config.activation_observer,
        power_of_two=site.config.power_of_two or site.config.deployable,
        asymmetric=site.config.asymmetric and site.signed,
        rounding=site.config.rounding_function,
    )

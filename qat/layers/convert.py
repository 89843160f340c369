"""Convert a float model: every convolution and linear layer sees both operands on a grid."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from qat.layers.activation import QuantReLU
from qat.layers.config import FLOAT, Quantization
from qat.layers.conv import QuantConv2d
from qat.layers.linear import QuantLinear
from qat.layers.trace import Reader, Trace, trace
from qat.quantizers import IntGrid, ObservedScale, Quantizer

QUANTIZED: dict[type[nn.Module], type[nn.Module]] = {nn.Conv2d: QuantConv2d, nn.Linear: QuantLinear}


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
        model: any module; layers that are not plain `nn.Conv2d` or `nn.Linear` stay float.
        config: bits, rounding, overrides by layer.
        example: `(N, C, H, W)` with N at least 2 (BatchNorm needs it), or a tuple of arguments.

    Raises:
        ValueError: the model is quantized already or has nothing to quantize, the example holds fewer than
            2 samples, a pattern in `config.layers` matches no layer, or one asks for a float input of a layer
            that shares a quantized activation with others.

    Warns:
        UserWarning: a convolution or linear layer stays float, because it did not run as a plain one.
    """
    if any(isinstance(module, Quantizer) for module in model.modules()):
        raise ValueError("the model is quantized already; quantize a fresh float model instead")
    args = example if isinstance(example, tuple) else (example,)
    samples = len(args[0]) if args and isinstance(args[0], Tensor) and args[0].dim() else 0
    if samples < 2:
        raise ValueError(
            f"example must start with a batch of at least 2 samples, got {samples}: BatchNorm needs two"
        )
    seen = trace(model, args, signed=config.input_signed)
    if not seen.readers:
        raise ValueError("the model ran no nn.Conv2d or nn.Linear: there is nothing to quantize")
    _warn_of_float_layers(model, seen)
    resolved = config.resolve(list(seen.readers), list(_readers_by_source(seen)))
    activations = _activation_configs(seen, config, resolved)
    for name, own in activations.items():
        _quantize_activation(model.get_submodule(name), own, seen.activations[name])
    outer = _first_and_last(seen)
    for name, reader in seen.readers.items():
        own = resolved.get(name, config)
        shared = activations.get(_source(reader, seen) or "")
        if shared is not None and _reads_otherwise(own, shared, config):
            if own.activation_bits == FLOAT:
                raise ValueError(
                    f"layers: {name} cannot have activation_bits 32, for it shares the output of "
                    f"{_source(reader, seen)} with layers of {shared.activation_bits} bits; override that one"
                )
            shared = None
        _quantize_layer(model.get_submodule(name), own, reader, name in outer, shared is not None)
    return model


def _warn_of_float_layers(model: nn.Module, seen: Trace) -> None:
    kinds = (nn.modules.conv._ConvNd, nn.Linear)
    left = [n for n, m in model.named_modules() if isinstance(m, kinds) and n not in seen.readers]
    if left:
        warnings.warn(
            f"left float, as they did not run as plain nn.Conv2d or nn.Linear: {', '.join(left)}",
            stacklevel=3,
        )


def _source(reader: Reader, seen: Trace) -> str | None:
    """The one activation module whose grid a layer reads; a re-used module has no grid of its own."""
    sources = {fact.source for fact in reader.facts}
    source = sources.pop()
    return source if not sources and source is not None and len(seen.activations[source]) == 1 else None


def _readers_by_source(seen: Trace) -> dict[str, list[str]]:
    """The activation modules that feed layers, in the order in which they ran, each with its readers."""
    readers: dict[str, list[str]] = {name: [] for name in seen.activations}
    for reader in seen.readers.values():
        source = _source(reader, seen)
        if source is not None:
            readers[source].append(reader.name)
    return {name: names for name, names in readers.items() if names}


def _activation_configs(
    seen: Trace, config: Quantization, resolved: dict[str, Quantization]
) -> dict[str, Quantization]:
    """The configuration of each activation that feeds layers: its own, else what all its readers ask for."""
    configs = {}
    for name, readers in _readers_by_source(seen).items():
        asked = [resolved.get(reader, config) for reader in readers]
        agreed = len({(own.activation_bits, own.rounding) for own in asked}) == 1
        configs[name] = resolved.get(name, asked[0] if agreed else config)
    return configs


def _reads_otherwise(own: Quantization, shared: Quantization, config: Quantization) -> bool:
    """Whether a layer was told, by its own name, to read its input in another way than it comes."""
    asked, given, usual = ((c.activation_bits, c.rounding) for c in (own, shared, config))
    return asked not in (given, usual)


def _first_and_last(seen: Trace) -> set[str]:
    """The first layer that ran, and every layer whose output reaches no other layer."""
    followed = frozenset[str]().union(*(f.upstream for r in seen.readers.values() for f in r.facts))
    return {next(iter(seen.readers))} | (seen.readers.keys() - followed)


def _quantize_activation(module: nn.Module, config: Quantization, samples: list[Tensor]) -> None:
    if config.activation_bits == FLOAT:
        return
    module.__class__ = QuantReLU
    module.quantizer = _activation_quantizer(config, config.activation_bits, signed=False, samples=samples)
    module.quantizer.train(module.training)


def _quantize_layer(
    module: nn.Module, config: Quantization, reader: Reader, outer: bool, on_grid: bool
) -> None:
    network_input = not any(fact.upstream for fact in reader.facts)
    weight_bits = config.first_last_bits if outer else config.weight_bits
    input_bits = config.input_bits if network_input else config.activation_bits
    weight_quantizer: nn.Module = nn.Identity()
    input_quantizer: nn.Module = nn.Identity()
    if weight_bits != FLOAT:
        weight_quantizer = _weight_quantizer(config, weight_bits, module)
    if input_bits != FLOAT and not on_grid:
        signed = not all(fact.unsigned for fact in reader.facts)
        input_quantizer = _activation_quantizer(config, input_bits, signed, reader.samples)
    if isinstance(weight_quantizer, Quantizer) or isinstance(input_quantizer, Quantizer):
        # The module keeps its identity: tied weights, hooks and other references to it stay right.
        module.__class__ = QUANTIZED[type(module)]
        module.weight_quantizer = weight_quantizer.train(module.training)
        module.input_quantizer = input_quantizer.train(module.training)


def _weight_quantizer(config: Quantization, bits: int, module: nn.Module) -> Quantizer:
    weight = module.weight
    assert isinstance(weight, Tensor)
    grid = IntGrid(bits)
    shape = (len(weight), *(1,) * (weight.dim() - 1)) if config.per_channel else ()
    scale = ObservedScale(grid.high, "max", shape, axis=0 if config.per_channel else None)
    return _started(Quantizer(grid, scale, config.rounding_function), weight)


def _activation_quantizer(config: Quantization, bits: int, signed: bool, samples: list[Tensor]) -> Quantizer:
    grid = IntGrid(bits, signed)
    quantizer = Quantizer(grid, ObservedScale(grid.high, "ema"), config.rounding_function)
    return _started(quantizer, torch.cat([sample.flatten() for sample in samples]))


def _started(quantizer: Quantizer, x: Tensor) -> Quantizer:
    quantizer.to(x.device)
    quantizer.scale.start(x)  # type: ignore[operator]  # nn.Module hides its methods' types
    return quantizer

"""Decide which quantizer goes where, from the trace of a model and its configuration."""

from dataclasses import dataclass
from typing import Any

from qat.layers.config import FLOAT, Quantization
from qat.layers.trace import ModelTrace, TracedModule

# At least, for an activation that only a pool or a sum reads: the average of few codes needs them.
IDLE_BITS = 8
# From here on a learned scale starts with a fraction of the codes and stays there, so the weights of the
# first and the last layer, and the input of the network, have observed scales.
WIDE = 8


@dataclass(frozen=True)
class QuantSpec:
    """The quantizers of one convolution or linear layer, or of one activation module."""

    name: str
    config: Quantization  # overrides applied, the preset expanded
    weight_bits: int  # 32: float, or no weight
    input_bits: int  # of a layer's input or an activation's output; 32: float, or quantized before
    signed: bool  # whether that input or output may be negative
    source: str | None = None  # the activation that quantizes the layer's input; None: the layer itself


def quant_specs(trace: ModelTrace, config: Quantization) -> tuple[list[QuantSpec], list[QuantSpec]]:
    """The specs of the activation modules that get a quantizer, and those of all layers."""
    consumers = _consumers_by_activation(trace, idle_too=bool(config.deployable))
    overrides = config.resolve(list(trace.consumers), list(consumers))
    default = config.expand_preset()
    activations: dict[str, QuantSpec] = {}
    for name, names in consumers.items():
        # An activation has its own configuration, else the one that all of its consumers agree in.
        asked = [overrides.get(consumer, default) for consumer in names]
        agreed = len({own.input_options for own in asked}) == 1
        own = overrides.get(name, asked[0] if agreed else default)
        properties = trace.activations[name].properties[0]
        bits = own.activation_bits if properties.upstream else own.input_bits
        if not names and name not in overrides:
            bits = max(bits, IDLE_BITS)
        activations[name] = QuantSpec(name, own, FLOAT, bits, not properties.unsigned)
    ends = _first_and_last(trace)
    layers = []
    for name, consumer in trace.consumers.items():
        own = overrides.get(name, default)
        source = _source(consumer, trace)
        # A layer whose override differs from the shared quantizer of its source quantizes its own input.
        overridden = config.overridden_input_options(name)
        if source and not _can_share(activations[source], name, own.activation_bits, overridden):
            source = None
        is_network_input = not any(properties.upstream for properties in consumer.properties)
        input_bits = own.input_bits if is_network_input else own.activation_bits
        weight_bits = own.first_last_bits if name in ends else own.weight_bits
        given = config.override_of(name)
        if name in ends and weight_bits >= WIDE and not {"weight_bits", "weight_scale"} & given.keys():
            own = own.with_observed("weight")
        if is_network_input and input_bits >= WIDE and "activation_scale" not in given:
            own = own.with_observed("activation")
        signed = not all(properties.unsigned for properties in consumer.properties)
        layers.append(QuantSpec(name, own, weight_bits, FLOAT if source else input_bits, signed, source))
    return list(activations.values()), layers


def _can_share(activation: QuantSpec, layer: str, bits: int, overridden: dict[str, Any]) -> bool:
    """Whether an activation's quantizer has the overridden options of the layer that reads its output."""
    shared = activation.config
    if all(getattr(shared, key) == value for key, value in overridden.items()):
        return True
    if bits == FLOAT:
        raise ValueError(
            f"layers: {layer} cannot have activation_bits 32, because it shares the output of "
            f"{activation.name} with layers of {shared.activation_bits} bits; override that one"
        )
    return False


def _consumers_by_activation(trace: ModelTrace, idle_too: bool) -> dict[str, list[str]]:
    """The consumers of each activation that gets a quantizer; with `idle_too` also where there are none."""
    run_once = [name for name, activation in trace.activations.items() if len(activation.samples) == 1]
    consumers: dict[str, list[str]] = {name: [] for name in run_once}
    for consumer in trace.consumers.values():
        source = _source(consumer, trace)
        if source is not None:
            consumers[source].append(consumer.name)
    return {name: names for name, names in consumers.items() if names or idle_too}


def _source(consumer: TracedModule, trace: ModelTrace) -> str | None:
    """The activation module whose grid the layer's input lies on; a module that runs twice has no grid."""
    source = consumer.source
    return source if source is not None and len(trace.activations[source].samples) == 1 else None


def _first_and_last(trace: ModelTrace) -> set[str]:
    """The first layer that ran, and each layer whose output reaches no other layer."""
    last = set(trace.consumers)
    for consumer in trace.consumers.values():
        for properties in consumer.properties:
            last -= properties.upstream - {consumer.name}
    return {next(iter(trace.consumers))} | last

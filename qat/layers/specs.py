"""Decide which quantizer goes where, from the trace of a model and its configuration."""

from dataclasses import dataclass

from qat.layers.config import FLOAT, Quantization
from qat.layers.trace import Consumer, ModelTrace


@dataclass(frozen=True)
class QuantSpec:
    """The quantizers of one convolution or linear layer, or of one activation module.

    Args:
        name: of the module.
        config: the options of its quantizers: overrides applied, the preset expanded.
        weight_bits: of its weight; 32: float, or no weight.
        input_bits: of a layer's input or an activation's output; 32: float, or quantized before.
        signed: whether that input or output may be negative.
        source: the activation module that quantizes the layer's input; None: the layer does so itself.
    """

    name: str
    config: Quantization
    weight_bits: int
    input_bits: int
    signed: bool
    source: str | None = None


def quant_specs(trace: ModelTrace, config: Quantization) -> tuple[list[QuantSpec], list[QuantSpec]]:
    """The specs of the activation modules that get a quantizer, and those of all layers.

    Raises:
        ValueError: a pattern in `config.layers` has no effect, or asks for a float input of a layer whose
            input is quantized for other layers.
    """
    consumers = _consumers_by_activation(trace, config.conversion.idle_activation_bits is not None)
    overrides = config.resolve(list(trace.consumers), list(consumers))
    default = config.expand_preset()
    activations: dict[str, QuantSpec] = {}
    for name, names in consumers.items():
        # An activation has its own configuration, else the one that all of its consumers agree in.
        asked = [overrides.get(consumer, default) for consumer in names]
        agreed = len({own.input_options for own in asked}) == 1
        own = overrides.get(name, asked[0] if agreed else default)
        properties = trace.activations[name].properties
        bits = own.activation_bits if properties.upstream else own.input_bits
        if not names and name not in overrides:
            # The average of few codes needs more bits, and no layer reads these.
            bits = max(bits, config.conversion.idle_activation_bits or 0)
        activations[name] = QuantSpec(name, own, FLOAT, bits, not properties.unsigned)
    ends = _first_and_last(trace)
    layers = []
    for name, consumer in trace.consumers.items():
        own = overrides.get(name, default)
        source = _shared_source(consumer, trace, config, own, activations)
        is_network_input = not any(properties.upstream for properties in consumer.properties)
        input_bits = own.input_bits if is_network_input else own.activation_bits
        weight_bits = own.first_last_bits if name in ends else own.weight_bits
        signed = not all(properties.unsigned for properties in consumer.properties)
        layers.append(QuantSpec(name, own, weight_bits, FLOAT if source else input_bits, signed, source))
    return list(activations.values()), layers


def _shared_source(
    consumer: Consumer,
    trace: ModelTrace,
    config: Quantization,
    own: Quantization,
    activations: dict[str, QuantSpec],
) -> str | None:
    """The activation module that quantizes the layer's input; None: the layer does so itself."""
    source = _source(consumer, trace)
    if source is None:
        return None
    shared = activations[source].config
    asked = config.overridden_input_options(consumer.name)
    if all(getattr(shared, key) == asked[key] for key in asked):
        return source
    if own.activation_bits == FLOAT:
        raise ValueError(
            f"layers: {consumer.name} cannot have activation_bits 32, because it shares the output of "
            f"{source} with layers of {shared.activation_bits} bits; override that one"
        )
    return None


def _consumers_by_activation(trace: ModelTrace, idle_too: bool) -> dict[str, list[str]]:
    """The consumers of each activation module that gets a quantizer, in the order in which they ran.

    Activations that feed layers come first. With `idle_too` those that feed none follow.
    """
    consumers: dict[str, list[str]] = {name: [] for name in trace.activations}
    for consumer in trace.consumers.values():
        source = _source(consumer, trace)
        if source is not None:
            consumers[source].append(consumer.name)
    feeding = {name: names for name, names in consumers.items() if names}
    idle = [name for name, activation in trace.activations.items() if len(activation.samples) == 1]
    return feeding | {name: [] for name in idle if idle_too and name not in feeding}


def _source(consumer: Consumer, trace: ModelTrace) -> str | None:
    """The activation module whose grid the layer's input lies on; a module that runs twice has no grid."""
    source = consumer.source
    return source if source is not None and len(trace.activations[source].samples) == 1 else None


def _first_and_last(trace: ModelTrace) -> set[str]:
    """The first layer that ran, and each layer whose output reaches no other layer."""
    upstream = {
        layer
        for consumer in trace.consumers.values()
        for properties in consumer.properties
        for layer in properties.upstream - {consumer.name}
    }
    return {next(iter(trace.consumers))} | (trace.consumers.keys() - upstream)

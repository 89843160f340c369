"""Which quantizer goes where: decided from what a run of the example showed."""

from collections.abc import Iterator
from dataclasses import dataclass

from qat.layers.config import FLOAT, Quantization
from qat.layers.trace import Reader, Trace

BITS_BEFORE_POOL = 8  # of a deployable activation that no layer reads as it is


@dataclass(frozen=True)
class Site:
    """One convolution or linear layer, or one activation module, and its own configuration.

    Args:
        name: of the module.
        config: bits and all else, overrides applied.
        weight_bits: of its weight; 32: float, or no weight.
        input_bits: of what it reads, for an activation of what it gives; 32: float, or quantized before.
        signed: whether that may be negative.
    """

    name: str
    config: Quantization
    weight_bits: int
    input_bits: int
    signed: bool


def activation_sites(seen: Trace, config: Quantization, resolved: dict[str, Quantization]) -> Iterator[Site]:
    """The activations to quantize. Each has its own configuration, else what all its readers ask for."""
    for name, readers in quantized_activations(seen, config).items():
        asked = [resolved.get(reader, config) for reader in readers]
        agreed = len({own.input_settings for own in asked}) == 1
        own = resolved.get(name, asked[0] if agreed else config)
        fact = seen.activations[name].fact
        bits = own.activation_bits if fact.upstream else own.input_bits
        if (
            not readers and name not in resolved
        ):  # an average of few codes needs more of them, and no layer less
            bits = max(bits, BITS_BEFORE_POOL)
        yield Site(name, own, FLOAT, bits, not fact.unsigned)


def reader_sites(
    seen: Trace, config: Quantization, resolved: dict[str, Quantization], activations: list[Site]
) -> Iterator[Site]:
    """The convolution and linear layers.

    Raises:
        ValueError: a layer shall read floats from an activation that is quantized for others.
    """
    shared = {site.name: site.config for site in activations}
    outer = _first_and_last(seen)
    for name, reader in seen.readers.items():
        own = resolved.get(name, config)
        source = _source(reader, seen)
        asked = config.own_input_settings(name)
        on_grid = source is not None and all(getattr(shared[source], key) == asked[key] for key in asked)
        if source is not None and not on_grid and own.activation_bits == FLOAT:
            raise ValueError(
                f"layers: {name} cannot have activation_bits 32, for it shares the output of {source} with "
                f"layers of {shared[source].activation_bits} bits; override that one"
            )
        network_input = not any(fact.upstream for fact in reader.facts)
        yield Site(
            name,
            own,
            own.first_last_bits if name in outer else own.weight_bits,
            FLOAT if on_grid else own.input_bits if network_input else own.activation_bits,
            not all(fact.unsigned for fact in reader.facts),
        )


def readers_by_source(seen: Trace) -> dict[str, list[str]]:
    """The activation modules that feed layers, in the order in which they ran, each with its readers."""
    readers: dict[str, list[str]] = {name: [] for name in seen.activations}
    for reader in seen.readers.values():
        source = _source(reader, seen)
        if source is not None:
            readers[source].append(reader.name)
    return {name: names for name, names in readers.items() if names}


def quantized_activations(seen: Trace, config: Quantization) -> dict[str, list[str]]:
    """The activation modules that get a quantizer, each with the layers that read it.

    Those that feed layers; with `deployable` also those that feed none, a pool or a sum say, for integers
    average and add codes.
    """
    feeding = readers_by_source(seen)
    others = [name for name, activation in seen.activations.items() if len(activation.samples) == 1]
    return feeding | {name: [] for name in others if config.deployable and name not in feeding}


def _source(reader: Reader, seen: Trace) -> str | None:
    """The one activation module whose grid a layer reads; a re-used module has no grid of its own."""
    sources = {fact.source for fact in reader.facts}
    source = sources.pop()
    alone = not sources and source is not None and len(seen.activations[source].samples) == 1
    return source if alone else None


def _first_and_last(seen: Trace) -> set[str]:
    """The first layer that ran, and every layer whose output reaches no other layer."""
    followed = frozenset[str]().union(
        *(f.upstream - {r.name} for r in seen.readers.values() for f in r.facts)
    )
    return {next(iter(seen.readers))} | (seen.readers.keys() - followed)

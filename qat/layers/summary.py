"""What each layer costs, at which bits it computes, and what was left float: as numbers and as text."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

from torch import Tensor, nn

from qat.layers.activation import QuantActivation
from qat.layers.config import FLOAT
from qat.layers.example import arguments, check_model
from qat.layers.insert import QUANT_LAYERS
from qat.layers.layer import QuantLayer
from qat.layers.trace import CONV_AND_LINEAR, ModelTrace, TracedModule
from qat.quantizers import IntGrid, PowerOfTwo, Quantizer

COLUMNS = {
    **{"layer": "name", "kind": "kind", "W bits": "weight_bits", "A bits": "input_bits"},
    **{"rounding": "rounding", "scale W/A": "scale"},
    **{"MACs": "macs", "bit ops": "bit_operations", "weight bytes": "weight_bytes"},
}
ALIGNMENT = "<<>><<>>>"  # text to the left, numbers to the right


@dataclass(frozen=True)
class LayerCost:
    """What one convolution or linear layer costs."""

    name: str  # of the module
    kind: str  # its class
    weight_bits: int  # 32 is float
    input_bits: int  # also where an activation quantizes the input; 32 is float
    rounding: str  # of weight and input; `-` where both are float
    scale: str  # how their scales are found, `weight/input`
    macs: int  # multiply-accumulates for one sample
    weight_bytes: int  # of the weight, packed at its bits; the bias is not counted
    float_bytes: int  # of the same weight in 32 bits

    @property
    def bit_operations(self) -> int:
        """`macs * weight_bits * input_bits`."""
        return self.macs * self.weight_bits * self.input_bits


@dataclass(frozen=True)
class Summary:
    """What a model costs."""

    rows: list[LayerCost]  # one for each layer that ran, in order
    left_float: dict[str, str]  # what computes in float (a module, or a function in a module) -> why
    not_run: list[str]  # quantized layers that run in training only, such as auxiliary heads; not counted
    weight_bytes: int  # of all weights; a shared weight is counted once
    float_bytes: int  # of the same weights in 32 bits
    notes: dict[str, str] = field(default_factory=dict)  # a quantized module -> what is wrong with its scale
    # Layers whose input stays float until they quantize it (a sum, an average) -> its bytes for one sample.
    float_before: dict[str, int] = field(default_factory=dict)

    @property
    def macs(self) -> int:
        """Multiply-accumulates for one sample."""
        return sum(row.macs for row in self.rows)

    @property
    def bit_operations(self) -> int:
        """`macs * weight_bits * input_bits`, summed over the layers."""
        return sum(row.bit_operations for row in self.rows)

    @property
    def float_bit_operations(self) -> int:
        """The bit operations of the same model in 32 bits."""
        return self.macs * FLOAT * FLOAT

    def __str__(self) -> str:
        blank = [""] * 5
        lines: list[list[Any]] = [[getattr(row, name) for name in COLUMNS.values()] for row in self.rows]
        lines.append(["total", *blank, self.macs, self.bit_operations, self.weight_bytes])
        lines.append(["in float", *blank, self.macs, self.float_bit_operations, self.float_bytes])
        table = [[*COLUMNS], *([f"{x:,}" if isinstance(x, int) else x for x in line] for line in lines)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        formats = [f"{{:{align}{width}}}" for align, width in zip(ALIGNMENT, widths, strict=True)]
        text = ["  ".join(formats).format(*line).rstrip() for line in table]
        text += [f"left float: {name}: {why}" for name, why in self.left_float.items()]
        if self.float_before:
            floats = "; ".join(f"{name} {size:,}" for name, size in self.float_before.items())
            text.append(f"float until the layer itself quantizes it, bytes of a sample: {floats}")
        text += [f"runs in training only: {name}" for name in self.not_run]
        text += [f"note: {name}: {note}" for name, note in self.notes.items()]
        return "\n".join(text)


def summary(model: nn.Module, example: Tensor | tuple[Any, ...]) -> Summary:
    """What each convolution and linear layer of a model costs.

    The example runs once, in eval mode and without grad; the model stays as it was.

    Args:
        model: quantized or float.
        example: `(N, C, H, W)`, or a tuple of arguments that starts with a batch.

    Raises:
        ValueError: the model is lazy or TorchScript; the example does not start with a batch, or does not run
            through the model.
    """
    check_model(model)
    args = arguments(example, at_least=1)
    trace = ModelTrace(lambda m: isinstance(m, CONV_AND_LINEAR), lambda m: isinstance(m, QuantActivation))
    trace.run(model, args, signed=True, training=False)
    rows, stored = [], {}
    for name, consumer in trace.consumers.items():
        module: Any = model.get_submodule(name)
        rows.append(_layer_cost(model, module, consumer, len(args[0])))
        stored[module.weight] = rows[-1]
    return Summary(
        rows,
        _left_float(model, trace, rows),
        [n for n, m in model.named_modules() if isinstance(m, QuantLayer) and n not in trace.consumers],
        sum(row.weight_bytes for row in stored.values()),
        sum(row.float_bytes for row in stored.values()),
        _notes(model, trace),
        _float_before(model, trace),
    )


def _layer_cost(model: nn.Module, module: Any, consumer: TracedModule, samples: int) -> LayerCost:
    for_weight = getattr(module, "weight_quantizer", None)
    for_input = getattr(module, "input_quantizer", None)
    if _is_nothing(for_input) and consumer.source is not None:
        for_input = model.get_submodule(consumer.source).quantizer
    count, bits = module.weight.numel(), _bits(for_weight)
    roundings = [_rounding(q) for q in (for_weight, for_input) if isinstance(q, Quantizer)]
    return LayerCost(
        name=consumer.name,
        kind=type(module).__name__,
        weight_bits=bits,
        input_bits=_bits(for_input),
        rounding="/".join(dict.fromkeys(roundings)) or "-",
        scale=f"{_scale(for_weight)}/{_scale(for_input)}",
        macs=_macs(module, consumer) // samples,
        weight_bytes=(count * bits + 7) // 8,
        float_bytes=count * FLOAT // 8,
    )


def _macs(module: Any, consumer: TracedModule) -> int:
    """MACs of all calls. A transposed convolution multiplies each input, the others sum up each output."""
    transposed = getattr(module, "transposed", False)
    counted = [x.shape for x in consumer.samples] if transposed else consumer.outputs
    return sum(shape.numel() for shape in counted) * prod(module.weight.shape[1:])


def _left_float(model: nn.Module, trace: ModelTrace, rows: list[LayerCost]) -> dict[str, str]:
    floats = [row for row in rows if FLOAT in (row.weight_bits, row.input_bits)]
    left = {row.name: _why(model.get_submodule(row.name), row) for row in floats}
    for name, module in model.named_modules():
        is_plain = isinstance(module, CONV_AND_LINEAR) and not isinstance(module, QuantLayer)
        if is_plain and name not in trace.consumers:
            left[name] = "did not run as a module in eval mode"
    for name, function in trace.products:
        why = "ran as a function, not as a module; its MACs are not counted"
        left[f"{name or 'the model itself'}: {function}"] = why
    return left


def _float_before(model: nn.Module, trace: ModelTrace) -> dict[str, int]:
    found = {}
    for name, consumer in trace.consumers.items():
        own: Any = getattr(model.get_submodule(name), "input_quantizer", None)
        if isinstance(own, Quantizer) and any(properties.upstream for properties in consumer.properties):
            found[name] = FLOAT // 8 * consumer.samples[0][0].numel()
    return found


def _notes(model: nn.Module, trace: ModelTrace) -> dict[str, str]:
    notes = {}
    for name, module in model.named_modules():
        quantizer = getattr(
            module, "input_quantizer" if isinstance(module, QuantLayer) else "quantizer", None
        )
        calls = len(trace.consumers[name].samples) if name in trace.consumers else 1
        if not isinstance(quantizer, Quantizer):
            continue
        if quantizer.scale.unset is not None:
            notes[name] = "its scale was never set; train the model or load a trained state"
        elif calls > 1:
            notes[name] = f"runs {calls} times, and one scale serves all inputs"
    return notes


def _why(module: nn.Module, row: LayerCost) -> str:
    parts = [part for part, bits in (("weight", row.weight_bits), ("input", row.input_bits)) if bits == FLOAT]
    widths = f"{' and '.join(parts)} have 32 bits" if len(parts) > 1 else f"its {parts[0]} has 32 bits"
    if isinstance(module, QuantLayer):
        own = {part: getattr(module, f"{part}_quantizer") for part in parts}
        unknown = [
            f"its {part}_quantizer, a {type(q).__name__}," for part, q in own.items() if not _is_nothing(q)
        ]
        return f"{' and '.join(unknown)} states no grid: give it an IntGrid as `grid`" if unknown else widths
    if "forward" in vars(module):
        return "its forward was replaced"
    if type(module) in QUANT_LAYERS:
        return f"{widths}; it holds no quantizer"
    return f"there is no quantized form of {type(module).__name__}"


def _bits(quantizer: Any) -> int:
    """Of a quantizer, also of a user-defined module that states its grid."""
    grid = getattr(quantizer, "grid", None)
    return grid.bits if isinstance(grid, IntGrid) else FLOAT


def _is_nothing(quantizer: Any) -> bool:
    return quantizer is None or isinstance(quantizer, nn.Identity)


def _rounding(quantizer: Quantizer) -> str:
    name = getattr(quantizer.rounding, "__name__", type(quantizer.rounding).__name__)
    return name.removeprefix("round_")


def _scale(quantizer: Any) -> str:
    if not isinstance(quantizer, Quantizer):
        return "-" if _is_nothing(quantizer) else type(quantizer).__name__
    scale: nn.Module = quantizer.scale
    inner, suffix = (scale.inner, " 2^k") if isinstance(scale, PowerOfTwo) else (scale, "")
    kind = type(inner)
    name = kind.__name__.removesuffix("Scale").lower() if _is_built_in(kind) else kind.__name__
    observer = getattr(getattr(inner, "observer", None), "name", "")  # of a user-defined function
    return name + (f" by {observer}" if observer else "") + suffix


def _is_built_in(kind: type[nn.Module]) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]

"""What each layer costs, in which bits it computes, and what was left float."""

from math import prod
from typing import Any

from torch import Tensor, nn

from qat.layers.activation import QuantActivation
from qat.layers.config import FLOAT
from qat.layers.convert import QUANT_LAYERS
from qat.layers.cost import Row, Summary
from qat.layers.example import arguments, check_model
from qat.layers.layer import QuantLayer
from qat.layers.trace import Reader, Trace, trace
from qat.quantizers import PowerOfTwo, Quantizer

LAYERS = (nn.modules.conv._ConvNd, nn.Linear)


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
    watch = Trace(lambda m: isinstance(m, LAYERS), lambda m: isinstance(m, QuantActivation))
    seen = trace(model, args, signed=True, training=False, seen=watch)
    rows, stored = [], {}
    for name, reader in seen.readers.items():
        module: Any = model.get_submodule(name)
        rows.append(_row(model, module, reader, len(args[0])))
        stored[module.weight] = (rows[-1].weight_bytes, rows[-1].float_bytes)
    return Summary(
        rows,
        _left_float(model, seen, rows),
        [n for n, m in model.named_modules() if isinstance(m, QuantLayer) and n not in seen.readers],
        sum(packed for packed, _ in stored.values()),
        sum(plain for _, plain in stored.values()),
    )


def _row(model: nn.Module, module: Any, reader: Reader, samples: int) -> Row:
    of_weight = getattr(module, "weight_quantizer", None)
    of_input = _input_quantizer(model, module, reader)
    count = module.weight.numel()
    bits = _bits(of_weight)
    both = [quantizer for quantizer in (of_weight, of_input) if isinstance(quantizer, Quantizer)]
    return Row(
        name=reader.name,
        kind=type(module).__name__,
        weight_bits=bits,
        input_bits=_bits(of_input),
        rounding="/".join(dict.fromkeys(_rounding(quantizer) for quantizer in both)) or "-",
        scale=f"{_scale(of_weight)}/{_scale(of_input)}",
        macs=_macs(module, reader) // samples,
        weight_bytes=(count * bits + 7) // 8,
        float_bytes=count * FLOAT // 8,
    )


def _input_quantizer(model: nn.Module, module: nn.Module, reader: Reader) -> Any:
    """The layer's own, else that of the activation on whose grid every input of it lies."""
    own = getattr(module, "input_quantizer", None)
    sources = {fact.source for fact in reader.facts}
    source = sources.pop()
    if isinstance(own, Quantizer) or sources or source is None:
        return own
    return model.get_submodule(source).quantizer


def _macs(module: Any, reader: Reader) -> int:
    """Over all calls. A transposed convolution multiplies each input, the others make each output."""
    if getattr(module, "transposed", False):
        return sum(x.numel() for x in reader.samples) * prod(module.weight.shape[1:])
    return sum(shape.numel() for shape in reader.outputs) * prod(module.weight.shape[1:])


def _left_float(model: nn.Module, seen: Trace, rows: list[Row]) -> dict[str, str]:
    left = {}
    for row in rows:
        if FLOAT in (row.weight_bits, row.input_bits):
            left[row.name] = _why(model.get_submodule(row.name), row)
    for name, module in model.named_modules():
        if isinstance(module, LAYERS) and not isinstance(module, QuantLayer) and name not in seen.readers:
            left[name] = "did not run as a module in eval mode"
    for name, function in seen.products:
        left[f"{name or 'the model itself'}: {function}"] = (
            "ran as a function, not as a module; its MACs are not counted"
        )
    return left


def _why(module: nn.Module, row: Row) -> str:
    if isinstance(module, QuantLayer):
        return "its weight has 32 bits" if row.weight_bits == FLOAT else "its input has 32 bits"
    if "forward" in vars(module):
        return "its forward was replaced"
    if type(module) in QUANT_LAYERS:
        return "weight and input have 32 bits"
    return f"there is no quantized form of {type(module).__name__}"


def _bits(quantizer: Any) -> int:
    return quantizer.grid.bits if isinstance(quantizer, Quantizer) else FLOAT


def _rounding(quantizer: Quantizer) -> str:
    name = getattr(quantizer.rounding, "__name__", type(quantizer.rounding).__name__)
    return name.removeprefix("round_")


def _scale(quantizer: Any) -> str:
    if not isinstance(quantizer, Quantizer):
        return "-"
    scale: nn.Module = quantizer.scale
    if isinstance(scale, PowerOfTwo):
        return f"{_scale_name(scale.inner)} 2^k"
    return _scale_name(scale)


def _scale_name(scale: nn.Module) -> str:
    return type(scale).__name__.removesuffix("Scale").lower()

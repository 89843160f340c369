"""How many bytes a network takes as ONNX, as npz and as C: in each layer and in total."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import onnx
from torch import Tensor, nn

from qat.export.c.source import c_source
from qat.export.integers.model import IntegerModel
from qat.export.integers.npz import npz_bytes
from qat.export.onnx.export import onnx_bytes
from qat.export.torch_state import default_torch_state
from qat.export.trained_model import float32_model
from qat.layers import Quantization, quantize
from qat.layers.trace import CONV_AND_LINEAR

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Sizes:
    """Bytes of one network in one format."""

    layers: dict[str, int]  # of the stored weight of each convolution and linear layer, by name
    total: int  # of the whole file; of C, of the compiled constants

    @property
    def weights(self) -> int:
        """Bytes of all weights."""
        return sum(self.layers.values())


@default_torch_state()
def onnx_sizes(model: nn.Module, example: Tensor) -> Sizes:
    """Sizes of the ONNX file of a float or quantized model; raises the errors of `export_onnx`."""
    content = onnx_bytes(float32_model(model), (example.detach().float(),), opset=None, fold=False, run="")
    stored = {t.name: len(t.raw_data) for t in onnx.load_from_string(content).graph.initializer}
    layers: dict[str, int] = {}
    floats = set[nn.Parameter]()  # that were counted; layers may share one
    for name, module in model.named_modules():
        if isinstance(module, CONV_AND_LINEAR):
            weight: Any = module.weight
            of_floats = 0 if weight in floats else FLOAT_BYTES * weight.numel()
            layers[name] = stored.get(f"{name}.weight.codes", of_floats)
            floats.add(weight)
    return Sizes(layers, len(content))


def npz_sizes(model: IntegerModel) -> Sizes:
    """Sizes of the npz file."""
    return Sizes(_packed_bytes(model), len(npz_bytes(model)))


def c_sizes(model: IntegerModel) -> Sizes:
    """Sizes of the constants in C. Each weight has one byte more, which its reader may touch."""
    layers = {layer: size + 1 for layer, size in _packed_bytes(model).items()}
    return Sizes(layers, c_source(model).flash)


def sizes_by_width(
    build: Callable[[], nn.Module], config: Quantization, example: Tensor, widths: tuple[int, ...] = (8, 4, 2)
) -> dict[str, Sizes]:
    """The sizes of a network in float and at several bit-widths, in each format, by "<width> <format>".

    `build` returns the float network, whose weights may be random. The widths take the place of the
    configuration's `weight_bits`, `activation_bits` and `layers`. `example` has at least two images.

    Raises:
        ValueError: the network has no form in integers.
    """
    sizes = {"float ONNX": onnx_sizes(build(), example)}
    for bits in widths:
        model = quantize(build(), replace(config, weight_bits=bits, activation_bits=bits, layers={}), example)
        model.train()(example)
        integers = IntegerModel(model, example.shape[1:])
        sizes[f"{bits} bits ONNX"] = onnx_sizes(model, example)
        sizes[f"{bits} bits npz"] = npz_sizes(integers)
        sizes[f"{bits} bits C"] = c_sizes(integers)
    return sizes


def _packed_bytes(model: IntegerModel) -> dict[str, int]:
    return {step.layer: len(step.packed_weight) for step in model.program.steps if step.op == "conv"}

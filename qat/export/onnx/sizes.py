"""How many bytes a network takes: as ONNX, as npz and as C, per layer and in total."""

from dataclasses import dataclass

import onnx
from torch import Tensor, nn

from qat.export.c.source import c_source
from qat.export.integers.integer import IntegerModel
from qat.export.integers.npz import npz_bytes, packed_weight
from qat.export.onnx.onnx import onnx_bytes
from qat.layers.trace import CONV_AND_LINEAR


@dataclass(frozen=True)
class Sizes:
    """Bytes of one network in one format.

    Args:
        layers: of the weight of each convolution and linear layer, as it is stored.
        total: of the whole file; of C, of the constants that it compiles to.
    """

    layers: dict[str, int]
    total: int

    @property
    def weights(self) -> int:
        """Bytes of all weights."""
        return sum(self.layers.values())


def onnx_sizes(model: nn.Module, example: Tensor) -> Sizes:
    """Of the ONNX file of a float or quantized model.

    Raises:
        ValueError: as `export_onnx`.
    """
    content = onnx_bytes(model, (example,), opset=25, fold=False, run="")
    stored = {t.name: len(t.raw_data) for t in onnx.load_from_string(content).graph.initializer}
    names = [name for name, module in model.named_modules() if isinstance(module, CONV_AND_LINEAR)]
    layers = {name: stored.get(f"{name}.weight.codes", stored.get(f"{name}.weight", 0)) for name in names}
    return Sizes(layers, len(content))


def npz_sizes(model: IntegerModel) -> Sizes:
    """Of the npz file."""
    convs = [step for step in model.program.steps if step.op == "conv"]
    return Sizes({step.layer: len(packed_weight(step)) for step in convs}, len(npz_bytes(model)))


def c_sizes(model: IntegerModel) -> Sizes:
    """Of the constants in C: weights with the one byte that their reader may look beyond.

    Raises:
        ValueError: as `write_c`.
    """
    convs = [step for step in model.program.steps if step.op == "conv"]
    return Sizes({step.layer: len(packed_weight(step)) + 1 for step in convs}, c_source(model).flash)

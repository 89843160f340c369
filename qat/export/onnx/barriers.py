"""Keeps onnxruntime's optimizer from changing what a file computes, and from graphs that it cannot run."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from qat.export.agreement import TIE

# What the optimizer moves across QuantizeLinear and DequantizeLinear.
MOVED = {"MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Clip", "Relu"}
WITH_BIAS = ("Conv", "ConvTranspose", "Gemm")


def add_barriers(graph: onnx.GraphProto) -> None:
    """Put a Max that changes no value behind codes that the optimizer must not use.

    onnxruntime 1.32 moves MaxPool, Reshape and the like across QuantizeLinear and DequantizeLinear, removes a
    Clip before QuantizeLinear, and merges DequantizeLinear, Conv and QuantizeLinear into one convolution of
    integers. It moves nothing across a Max. This is wrong in three cases:

    - Codes of 2 bits, and of 4 bits in activations: no such operator has an implementation for them.
    - Signed codes of 8 bits that are moved: it makes them unsigned, but not the QuantizeLinear that it added.
    - A convolution of integers rounds its bias to a multiple of scale of input * scale of weight, in int32.
      Where that may move the next codes by more than half a tie, or overflow, the convolution stays in float.
    """
    _Barriers(graph).add()


class _Barriers:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph, self.nodes = graph, list(graph.node)
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self.makers = {name: node for node in self.nodes for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def add(self) -> None:
        inexact = {self._before_moved(node.input[0]) for node in self.nodes if self._rounds_its_bias(node)}
        del self.graph.node[:]
        renamed: dict[str, str] = {}
        for node in self.nodes:
            if node.op_type == "QuantizeLinear" and self._is_kept(node, [self.makers.get(node.input[0])]):
                node.input[0] = self._max(node, node.input[0])
            for place, name in enumerate(node.input):
                node.input[place] = renamed.get(name, name)
            self.graph.node.append(node)
            if node.op_type == "DequantizeLinear":
                value = node.output[0]
                if value in inexact or self._is_kept(node, self.readers.get(value, [])):
                    renamed[value] = self._max(node, value)

    def _is_kept(self, node: onnx.NodeProto, neighbours: Sequence[onnx.NodeProto | None]) -> bool:
        """Whether the codes of a node must not reach its neighbours, on the side of the values."""
        bits = ml_dtypes.iinfo(self._codes(node).dtype).bits
        moved = any(neighbour is not None and neighbour.op_type in MOVED for neighbour in neighbours)
        if bits == 2 or (bits == 4 and not _is_weight(node)):
            return moved or node.op_type == "DequantizeLinear"
        return moved and not _is_weight(node) and bits == 8 and self._lowest_code(node) < 0

    def _rounds_its_bias(self, node: onnx.NodeProto) -> bool:
        if node.op_type not in WITH_BIAS or len(node.input) < 3 or node.input[2] not in self.constants:
            return False
        scales = [self._scale_of(name) for name in node.input[:2]]
        steps = self._next_scales(node.output[0])
        if scales[0] is None or scales[1] is None or not steps:
            return False
        bias = self.constants[node.input[2]].astype(np.float64)
        unit = scales[0].astype(np.float64) * scales[1]
        if unit.size not in (1, bias.size):  # not one scale for each element of the bias
            return True
        moved = np.abs(bias - np.rint(bias / unit) * unit).max()
        return bool(moved > TIE / 2 * min(steps) or (np.abs(bias / unit) >= 2**31).any())

    def _scale_of(self, name: str) -> NDArray[Any] | None:
        """The scale of a value that comes from DequantizeLinear, `()` or `(C,)`; otherwise None."""
        node = self.makers.get(self._before_moved(name))
        return self.constants[node.input[1]] if node and node.op_type == "DequantizeLinear" else None

    def _before_moved(self, name: str) -> str:
        """The value from which operators that are moved make this one."""
        node = self.makers.get(name)
        return self._before_moved(node.input[0]) if node and node.op_type in MOVED else name

    def _next_scales(self, name: str) -> list[float]:
        """The scales of the grids that a value goes to, directly or through operators that are moved."""
        found = []
        for node in self.readers.get(name, []):
            if node.op_type == "QuantizeLinear":
                found.append(float(self.constants[node.input[1]]))
            elif node.op_type in MOVED:
                found += self._next_scales(node.output[0])
        return found

    def _codes(self, node: onnx.NodeProto) -> NDArray[Any]:
        """The stored codes of a weight, or the zero point of an activation."""
        return self.constants[node.input[0 if _is_weight(node) else 2]]

    def _lowest_code(self, node: onnx.NodeProto) -> int:
        return int(ml_dtypes.iinfo(self._codes(node).dtype).min)

    def _max(self, node: onnx.NodeProto, source: str) -> str:
        """The name of a value that equals another one: the larger of it and of the type's lowest value."""
        zero = 0 if _is_weight(node) else int(self._codes(node).astype(np.int64))
        lowest = (self._lowest_code(node) - zero) * self.constants[node.input[1]].max()
        name = f"{node.name}/kept"
        self.graph.initializer.append(numpy_helper.from_array(np.array(np.float32(lowest)), f"{name}/lowest"))
        self.graph.node.append(onnx.helper.make_node("Max", [source, f"{name}/lowest"], [name], name=name))
        return name


def _is_weight(node: onnx.NodeProto) -> bool:
    return len(node.input) < 3

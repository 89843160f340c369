"""Keeps onnxruntime's optimiser from moving operators to 2- and 4-bit codes, which they do not take."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

LOWEST: dict[int, int] = {
    TensorProto.UINT2: 0,
    TensorProto.INT2: -2,
    TensorProto.UINT4: 0,
    TensorProto.INT4: -8,
}
MOVED = {"MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice"}
BEFORE = MOVED | {"Clip"}


def keep_narrow_codes(graph: onnx.GraphProto) -> None:
    """Put a Max that changes no code between a narrow pair of Q and DQ and operators that must not reach it.

    onnxruntime 1.32 moves the `MOVED` from before QuantizeLinear, or from behind DequantizeLinear, to between
    the two, and then refuses the file, for its MaxPool and Reshape know no such codes; it also refuses the
    file where it tries to take away a Clip before such a QuantizeLinear. It does nothing across a Max.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = list(graph.node)
    del graph.node[:]
    kept: dict[str, str] = {}
    for node in nodes:
        lowest = _lowest(node, constants)
        if lowest is not None and node.op_type == "QuantizeLinear" and _made_by(node.input[0], nodes):
            _add_max(graph, node.input[0], f"{node.name}/kept", lowest)
            node.input[0] = f"{node.name}/kept"
        if node.op_type in MOVED:
            for place, name in enumerate(node.input):
                node.input[place] = kept.get(name, name)
        graph.node.append(node)
        if lowest is not None and node.op_type == "DequantizeLinear" and _read_by(node.output[0], nodes):
            kept[node.output[0]] = f"{node.name}/kept"
            _add_max(graph, node.output[0], kept[node.output[0]], lowest)


def _lowest(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> np.float32 | None:
    """The value of the lowest code that a narrow type holds; None for all other nodes, and for weights."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or len(node.input) < 3:
        return None
    zero_point = constants[node.input[2]]
    if zero_point.data_type not in LOWEST:
        return None
    scale = numpy_helper.to_array(constants[node.input[1]])
    zero = int(numpy_helper.to_array(zero_point).astype(np.int64))
    return np.float32((LOWEST[zero_point.data_type] - zero) * scale)


def _made_by(name: str, nodes: list[onnx.NodeProto]) -> bool:
    return any(node.op_type in BEFORE and name in node.output for node in nodes)


def _read_by(name: str, nodes: list[onnx.NodeProto]) -> bool:
    return any(node.op_type in MOVED and name in node.input for node in nodes)


def _add_max(graph: onnx.GraphProto, source: str, output: str, lowest: np.float32) -> None:
    graph.initializer.append(numpy_helper.from_array(np.array(lowest), f"{output}/lowest"))
    graph.node.append(onnx.helper.make_node("Max", [source, f"{output}/lowest"], [output], name=output))

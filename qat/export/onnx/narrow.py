"""Keeps onnxruntime's optimiser from moving operators to 2- and 4-bit codes, which they do not take."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

LOWEST: dict[int, int] = {
    **{TensorProto.UINT2: 0, TensorProto.INT2: -2},
    **{TensorProto.UINT4: 0, TensorProto.INT4: -8},
}
BEFORE = {"MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Clip"}


def keep_narrow_codes(graph: onnx.GraphProto) -> None:
    """Put a Max that changes no value between narrow codes and operators that must not reach them.

    onnxruntime 1.32 moves MaxPool, Reshape and the like from before QuantizeLinear, or from behind
    DequantizeLinear, to between the two, it makes one integer convolution of DequantizeLinear, Conv and
    QuantizeLinear, and it takes away a Clip before QuantizeLinear. With 2-bit codes, and with 4-bit ones of
    activations, it then refuses the file, for none of these knows them. It does nothing across a Max.
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
        for place, name in enumerate(node.input):
            node.input[place] = kept.get(name, name)
        graph.node.append(node)
        if lowest is not None and node.op_type == "DequantizeLinear":
            kept[node.output[0]] = f"{node.name}/kept"
            _add_max(graph, node.output[0], kept[node.output[0]], lowest)


def _lowest(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> np.float32 | None:
    """A value that none lies below, where codes are too narrow for the optimiser; None elsewhere."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return None
    scale = numpy_helper.to_array(constants[node.input[1]]).max()
    if len(node.input) < 3:  # a weight; of 4 bits they are left alone, and need no Max in every run
        codes = constants[node.input[0]].data_type
        return np.float32(LOWEST[codes] * scale) if codes == TensorProto.INT2 else None
    zero_point = constants[node.input[2]]
    if zero_point.data_type not in LOWEST:
        return None
    zero = int(numpy_helper.to_array(zero_point).astype(np.int64))
    return np.float32((LOWEST[zero_point.data_type] - zero) * scale)


def _made_by(name: str, nodes: list[onnx.NodeProto]) -> bool:
    return any(node.op_type in BEFORE and name in node.output for node in nodes)


def _add_max(graph: onnx.GraphProto, source: str, output: str, lowest: np.float32) -> None:
    graph.initializer.append(numpy_helper.from_array(np.array(lowest), f"{output}/lowest"))
    graph.node.append(onnx.helper.make_node("Max", [source, f"{output}/lowest"], [output], name=output))

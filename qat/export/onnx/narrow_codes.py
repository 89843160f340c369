"""Keeps onnxruntime's optimizer from moving operators to codes of 2 and 4 bits, which they do not accept."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

LOWEST_CODE: dict[int, int] = {
    **{TensorProto.UINT2: 0, TensorProto.INT2: -2},
    **{TensorProto.UINT4: 0, TensorProto.INT4: -8},
}
MOVED = {"MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Clip"}


def keep_narrow_codes(graph: onnx.GraphProto) -> None:
    """Put a Max that changes no value between narrow codes and the operators that must not reach them.

    onnxruntime 1.32 moves MaxPool, Reshape and the like across QuantizeLinear and DequantizeLinear, merges
    DequantizeLinear, Conv and QuantizeLinear into one integer convolution, and removes a Clip before
    QuantizeLinear. With 2-bit codes, and with 4-bit codes of activations, it then refuses the file, because
    none of these operators has an implementation for them. It moves nothing across a Max.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = list(graph.node)
    moved = {name for node in nodes if node.op_type in MOVED for name in node.output}
    del graph.node[:]
    renamed: dict[str, str] = {}
    for node in nodes:
        lowest = _lowest_value(node, constants)
        if lowest is not None and node.op_type == "QuantizeLinear" and node.input[0] in moved:
            _add_max(graph, node.input[0], f"{node.name}/kept", lowest)
            node.input[0] = f"{node.name}/kept"
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
        graph.node.append(node)
        if lowest is not None and node.op_type == "DequantizeLinear":
            renamed[node.output[0]] = f"{node.name}/kept"
            _add_max(graph, node.output[0], renamed[node.output[0]], lowest)


def _lowest_value(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> np.float32 | None:
    """A lower bound of the values, if the codes are too narrow for the optimizer; otherwise None."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return None
    scale = numpy_helper.to_array(constants[node.input[1]]).max()
    is_weight = len(node.input) < 3  # the optimizer leaves weights of 4 bits alone
    codes = constants[node.input[0 if is_weight else 2]]
    if codes.data_type not in ((TensorProto.INT2,) if is_weight else LOWEST_CODE):
        return None
    zero = 0 if is_weight else int(numpy_helper.to_array(codes).astype(np.int64))
    return np.float32((LOWEST_CODE[codes.data_type] - zero) * scale)


def _add_max(graph: onnx.GraphProto, source: str, output: str, lowest: np.float32) -> None:
    graph.initializer.append(numpy_helper.from_array(np.array(lowest), f"{output}/lowest"))
    graph.node.append(onnx.helper.make_node("Max", [source, f"{output}/lowest"], [output], name=output))

"""torch's exporter, and what is changed in the file that it makes."""

import ast
import warnings

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from qat.export.onnx.operators import QuantizeDequantize, StoredWeight


def torch_export(model: nn.Module, args: tuple[Tensor, ...]) -> onnx.ModelProto:
    """The graph of a runtime copy, with integer types."""
    batch = torch.export.Dim("batch")
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # the exporter's warnings about itself
            program = torch.onnx.export(
                model,
                args,
                dynamo=True,
                opset_version=21,
                dynamic_shapes=tuple({0: batch} for _ in args),
                input_names=["input"] if len(args) == 1 else None,
                output_names=["output"],
                verbose=False,
            )
    except Exception as error:  # the exporter raises many types
        cause = error.__cause__ or error
        why = " ".join(str(cause).split())[:300]
        raise ValueError(f"torch's exporter refuses the model ({type(cause).__name__}): {why}") from error
    assert program is not None
    proto = program.model_proto
    if len(proto.graph.output) != 1:
        raise ValueError(f"the model must return one tensor, it returns {len(proto.graph.output)}")
    for node in proto.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            _set_codes(node, proto.graph, model)
    return proto


def module_of(node: onnx.NodeProto) -> str:
    """The name of the module whose forward made a node."""
    # No public function says it; `tests/export/test_torch_metadata.py` checks the key.
    scopes = next(p.value for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes")
    return str(ast.literal_eval(scopes)[-2])


def clean(proto: onnx.ModelProto) -> None:
    """Remove unused constants, and the exporter's notes, which hold paths of source files."""
    graph = proto.graph
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:], graph.value_info[:], proto.metadata_props[:]
    graph.initializer.extend(kept)
    for part in (*graph.node, *graph.input, *graph.output, *graph.initializer, graph):
        del part.metadata_props[:]
        part.doc_string = ""


def _set_codes(node: onnx.NodeProto, graph: onnx.GraphProto, model: nn.Module) -> None:
    """Name a QuantizeLinear or DequantizeLinear after its module, and give it codes of the module's type."""
    name = module_of(node)
    module = model.get_submodule(name)
    if isinstance(module, StoredWeight):
        name = name.replace(".weight_quantizer", ".weight")
        place, constant, codes = 0, f"{name}.codes", module.codes
    else:
        assert isinstance(module, QuantizeDequantize)
        place, constant, codes = 2, f"{name}.zero_point", np.array(module.zero)
    node.name = f"{name}/{node.op_type}"
    node.input[place] = constant
    # A pair of nodes shares a zero point, and torch's exporter may have given this name to a constant.
    found = [tensor for tensor in graph.initializer if tensor.name == constant]
    tensor = found[0] if found else graph.initializer.add()
    tensor.CopyFrom(numpy_helper.from_array(codes.astype(module.code_type), constant))

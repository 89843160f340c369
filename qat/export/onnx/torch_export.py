"""torch's exporter, and what is changed in the file that it makes."""

import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from torch import Tensor, nn
from torch.onnx import ops

from qat.export.onnx.operators import DOMAIN, QuantizeDequantize, StoredWeight


def torch_export(model: nn.Module, args: tuple[Tensor, ...]) -> onnx.ModelProto:
    """The graph of a runtime copy, with integer types."""
    shapes = tuple({0: torch.export.Dim("batch")} for _ in args)
    try:
        with warnings.catch_warnings(), _quiet_logs():
            warnings.simplefilter("ignore")  # the exporter's warnings about itself
            program = torch.onnx.export(
                _capture(model, args, shapes),
                dynamo=True,
                opset_version=21,
                dynamic_shapes=shapes,  # for the name of the dimension
                input_names=["input"] if len(args) == 1 else None,
                output_names=["output"],
                verbose=False,
            )
    except Exception as error:  # the exporter raises many types
        cause = error.__cause__ or error
        why = " ".join(str(cause).split())[:300]
        if "marked batch as dynamic" in why:
            why = (
                "its forward fixes the batch size, as x.view(2, -1) and loops over a batch do; write "
                "x.flatten(1), or x.shape[0] for the size"
            )
        raise ValueError(f"torch's exporter refuses the model ({type(cause).__name__}): {why}") from error
    assert program is not None
    proto = program.model_proto
    if len(proto.graph.output) != 1:
        raise ValueError(f"the model must return one tensor, it returns {len(proto.graph.output)}")
    _set_codes(proto, model)
    return proto


def _capture(model: nn.Module, args: tuple[Tensor, ...], shapes: Any) -> torch.export.ExportedProgram:
    """The program of a model for any batch size."""
    try:
        return torch.export.export(model, args, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        # The other way takes fewer models, but there `len(x)` is a symbol and no number.
        torch.compiler.allow_in_graph(ops.symbolic)
        try:
            return torch.export.export(model, args, dynamic_shapes=shapes, strict=True)
        except Exception:
            raise error from None


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Without torch's log of errors that it raises, too."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


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


def _set_codes(proto: onnx.ModelProto, model: nn.Module) -> None:
    """Make ONNX's operators of the stand-ins: with their constants, and named after their quantizer."""
    modules = {m.name: m for m in model.modules() if isinstance(m, QuantizeDequantize | StoredWeight)}
    constants: dict[str, NDArray[Any]] = {}
    calls = Counter[str]()
    for node in [node for node in proto.graph.node if node.domain == DOMAIN]:
        (named,) = (attribute for attribute in node.attribute if attribute.name == "quantizer")
        module = modules[named.s.decode()]
        node.attribute.remove(named)
        node.domain, node.name = "", f"{module.name}/{node.op_type}"
        calls[node.name] += 1
        if calls[node.name] > 1:  # the module runs more than once
            node.name += f"/{calls[node.name]}"
        node.input.extend(module.constants)
        constants |= module.constants
        if isinstance(module, StoredWeight) and module.shift:
            _add_shift(proto.graph, node, *module.shift)
            constants |= module.shift
    proto.graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in constants.items())
    for opset in [opset for opset in proto.opset_import if opset.domain == DOMAIN]:
        proto.opset_import.remove(opset)


def _add_shift(graph: onnx.GraphProto, node: onnx.NodeProto, shift: str) -> None:
    """Add a constant to the output of a node."""
    output = node.output[0]
    node.output[0] = f"{output}_unshifted"
    add = helper.make_node("Add", [node.output[0], shift], [output], name=f"{node.name}/shift")
    graph.node.insert(list(graph.node).index(node) + 1, add)

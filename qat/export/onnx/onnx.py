"""A model as an ONNX file: Q and DQ for activations, integers for weights, checked before it is written."""

import ast
import json
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from qat.export.integers.integer_types import OPSETS
from qat.export.onnx.checks import activation_quantizers, check_ready, layer_of
from qat.export.onnx.leaving import refuse_leaving
from qat.export.onnx.narrow import keep_narrow_codes
from qat.export.onnx.runtime_copy import QuantizeDequantize, Stored, runtime_copy
from qat.export.onnx.verify import explain_or_refuse
from qat.layers import QuantLayer
from qat.quantizers import Quantizer
from qat.whole_file import check_folder, write_whole

IR_VERSIONS = {21: 10, 22: 10, 23: 11, 24: 12, 25: 13}


def export_onnx(
    model: nn.Module,
    example: Tensor | tuple[Any, ...],
    path: str | Path,
    *,
    opset: int = 25,
    fold: bool = False,
    run: str = "",
) -> Path:
    """Write a model as an ONNX file that computes what the model computes in eval mode.

    Weights are stored as integers: INT2 for 1 and 2 bits, INT4 for 3 and 4, INT8 for 5 to 8, INT16; below
    opset 25 there is no INT2, and INT4 takes its place. Activations go through QuantizeLinear and
    DequantizeLinear, after a Clip where the type holds more codes than the grid. The batch is dynamic. The
    metadata say the bits of each layer, the run and the versions. The same model gives the same bytes.

    The model's state, mode, device and gradients are untouched. Before anything is written the file is run
    in onnxruntime on a batch of other random images, and every image on which it differs must be traced to a
    code that lies on a tie.

    Args:
        model: a quantized model that was trained or calibrated, or a float one; it returns one tensor.
        example: `(N, C, H, W)`, or a tuple of arguments, each with the batch first.
        path: of the file; it is written whole or not at all.
        opset: 21 to 25.
        fold: whether a BatchNorm that stands between a layer and its activation is folded into the layer's
            scales and bias. A `deployable` model has none left.
        run: where the model comes from, for the metadata.

    Returns:
        The path.

    Raises:
        ValueError: the model is not ready (never calibrated, in a float phase), leaves the graph (through
            NumPy), cannot be exported, or the file computes something else; the opset is not one of these.
    """
    if opset not in OPSETS:
        raise ValueError(f"opset must be one of {', '.join(map(str, OPSETS))}; got {opset}")
    path = check_folder(path)  # before the work
    args = example if isinstance(example, tuple) else (example,)
    content = onnx_bytes(model, args, opset, fold, run)
    explain_or_refuse(model, content, other_batch(args))
    return write_whole(path, content)


def onnx_bytes(model: nn.Module, args: tuple[Any, ...], opset: int, fold: bool, run: str) -> bytes:
    """The content of the file, not yet checked."""
    check_ready(model)
    args = tuple(_pair(x) for x in args)
    refuse_leaving(model, args)
    args = tuple(x.cpu().float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in args)
    copy = runtime_copy(model, args, opset, fold)
    proto = _torch_export(copy, args)
    for node in proto.graph.node:
        _finish_node(node, proto.graph, copy)
    keep_narrow_codes(proto.graph)
    _strip(proto, opset)
    for key, value in _metadata(model, run).items():
        proto.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString(deterministic=True)


def other_batch(args: tuple[Any, ...], samples: int = 5) -> tuple[Any, ...]:
    """Random tensors of the example's shapes and ranges: another batch, of another size."""
    generator = torch.Generator().manual_seed(0)
    others = []
    for x in args:
        if not (isinstance(x, Tensor) and x.is_floating_point()):
            raise ValueError(f"example must be of floating-point tensors; got {getattr(x, 'dtype', type(x))}")
        low, high = x.min().item(), x.max().item()
        high = high if high > low else low + 1
        new = torch.rand(samples, *x.shape[1:], generator=generator) * (high - low) + low
        others.append(new.to(x.device, x.dtype))
    return tuple(others)


def _pair(x: Any) -> Any:
    """At least two samples: to torch.export a batch of one is always one."""
    return torch.cat([x, x])[:2] if isinstance(x, Tensor) and x.dim() and len(x) < 2 else x


def _torch_export(model: nn.Module, args: tuple[Any, ...]) -> onnx.ModelProto:
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch} for _ in args)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # what torch's exporter says of itself
            program = torch.onnx.export(
                model,
                args,
                dynamo=True,
                opset_version=21,
                dynamic_shapes=shapes,
                input_names=["input"] if len(args) == 1 else None,
                output_names=["output"],
                verbose=False,
            )
    except Exception as error:  # torch's exporter fails in as many ways as there are models
        cause = error.__cause__ or error
        why = " ".join(str(cause).split())[:300]
        raise ValueError(
            f"torch's exporter does not take the model ({type(cause).__name__}): {why}"
        ) from error
    assert program is not None
    proto = program.model_proto
    if len(proto.graph.output) != 1:
        raise ValueError(f"the model must return one tensor, it returns {len(proto.graph.output)}")
    return proto


def _finish_node(node: onnx.NodeProto, graph: onnx.GraphProto, copy: nn.Module) -> None:
    """Give a QuantizeLinear or DequantizeLinear its name and its integer type."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return
    scopes = next(p.value for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes")
    name = ast.literal_eval(scopes)[-2]
    module = copy.get_submodule(name)
    assert isinstance(module, QuantizeDequantize | Stored)
    name = name.replace(".weight_quantizer", ".weight") if isinstance(module, Stored) else name
    node.name = f"{name}/{node.op_type}"
    if isinstance(module, Stored):
        node.input[0] = f"{name}.codes"
        tensor = module.kind.tensor(node.input[0], module.codes)
    else:
        node.input[2] = f"{name}.zero_point"
        tensor = module.kind.tensor(node.input[2], np.array(module.zero))
    if all(known.name != tensor.name for known in graph.initializer):  # the two of a pair share a zero point
        graph.initializer.append(tensor)


def _strip(proto: onnx.ModelProto, opset: int) -> None:
    """Take out what is not needed: unused constants, torch's notes with the paths of its sources."""
    graph = proto.graph
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:], graph.value_info[:], proto.metadata_props[:]
    graph.initializer.extend(kept)
    for part in (*graph.node, *graph.input, *graph.output, *graph.initializer, graph):
        del part.metadata_props[:]
        part.doc_string = ""
    proto.opset_import[0].version = opset
    proto.ir_version = IR_VERSIONS[opset]
    proto.producer_name, proto.producer_version = "qat", version("qat")


def _metadata(model: nn.Module, run: str) -> Mapping[str, str]:
    bits: dict[str, dict[str, int]] = {}
    for name, module in model.named_modules():
        if isinstance(module, QuantLayer) and isinstance(module.weight_quantizer, Quantizer):
            bits.setdefault(name, {})["weight"] = module.weight_quantizer.grid.bits
    for name, quantizer in activation_quantizers(model).items():
        what = "input" if name.endswith("input_quantizer") else "output"
        bits.setdefault(layer_of(name), {})[what] = quantizer.grid.bits
    versions = {package: version(package) for package in ("qat", "torch", "onnx", "onnxruntime")}
    return {
        "bits": json.dumps(bits, sort_keys=True),
        "run": run,
        "versions": json.dumps(versions, sort_keys=True),
    }

"""Writes a model as an ONNX file, and runs the file before it is written."""

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from qat.export.onnx.graph_breaks import refuse_graph_breaks
from qat.export.onnx.narrow_codes import keep_narrow_codes
from qat.export.onnx.runtime_copy import runtime_copy
from qat.export.onnx.torch_export import clean, torch_export
from qat.export.onnx.verify import refuse_differences
from qat.export.readiness import activation_quantizers, check_ready, layer_of
from qat.layers import QuantLayer
from qat.names import check_class_names
from qat.quantizers import Quantizer
from qat.whole_file import check_folder, write_whole

# The format version of a file by its opset. Opset 21 added types of 4 bits, 25 those of 2 bits.
IR_VERSIONS = {21: 10, 22: 10, 23: 11, 24: 12, 25: 13}


def export_onnx(
    model: nn.Module,
    example: Tensor | tuple[Tensor, ...],
    path: str | Path,
    *,
    opset: int = 25,
    fold: bool = False,
    run: str = "",
    class_names: Sequence[str] | None = None,
) -> Path:
    """Write a model as an ONNX file that computes what the model computes in eval mode.

    Weights are stored as integers: INT2 for 1 and 2 bits, INT4 for 3 and 4, INT8 for 5 to 8, INT16; below
    opset 25, which has no INT2, INT4 takes its place. Activations go through QuantizeLinear and
    DequantizeLinear, after a Clip if the type holds more codes than the grid. The batch size is dynamic. The
    metadata hold the bits of each layer, the run and the versions. The same model gives the same bytes.

    The model's state, mode, device and gradients stay unchanged. Before the file is written it is run in
    onnxruntime on a batch of random images, and each image on which it differs from the model must be traced
    to a code that lies on a tie.

    Args:
        model: a quantized model that was trained or calibrated, or a float one; it returns one tensor.
        example: `(N, C, H, W)`, or a tuple of arguments that each have the batch first.
        path: path of the file; it is written whole or not at all.
        opset: 21 to 25.
        fold: whether a BatchNorm between a layer and its activation is folded into the layer's scales and
            bias. A `deployable` model has none left.
        run: where the model comes from, for the metadata.
        class_names: the name of each class, for the metadata: `class_names`, a list in JSON.

    Raises:
        ValueError: the model is not ready (never calibrated, in a float phase), leaves the graph (through
            NumPy) or cannot be exported, the file computes something else, or the opset is not supported.
    """
    if opset not in IR_VERSIONS:
        raise ValueError(f"opset must be one of {', '.join(map(str, IR_VERSIONS))}; got {opset}")
    path = check_folder(path)  # before the work
    args = example if isinstance(example, tuple) else (example,)
    for x in args:
        if not (isinstance(x, Tensor) and x.is_floating_point() and x.dim()):
            got = getattr(x, "dtype", type(x).__name__)
            raise ValueError(f"example must be of batches of floating-point numbers; got {got}")
    content = onnx_bytes(model, args, opset, fold, run)
    refuse_differences(model, content, _random_batch(args))
    if class_names is not None:
        content = _with_class_names(content, class_names)
    return write_whole(path, content)


def _with_class_names(content: bytes, names: Sequence[str]) -> bytes:
    proto = onnx.load_from_string(content)
    sizes = [size.dim_value for size in proto.graph.output[0].type.tensor_type.shape.dim]
    classes = sizes[1] if len(sizes) > 1 else 0
    proto.metadata_props.add(key="class_names", value=json.dumps(check_class_names(names, classes)))
    return proto.SerializeToString(deterministic=True)


def onnx_bytes(model: nn.Module, args: tuple[Tensor, ...], opset: int, fold: bool, run: str) -> bytes:
    """The content of the file, not yet compared with the model."""
    check_ready(model)
    # torch.export takes a batch of one for a constant.
    args = tuple(torch.cat([x, x])[:2] if len(x) < 2 else x for x in args)
    refuse_graph_breaks(model, args)
    args = tuple(x.cpu().float() for x in args)
    proto = torch_export(runtime_copy(model, args, opset, fold), args)
    keep_narrow_codes(proto.graph)
    clean(proto)
    proto.opset_import[0].version, proto.ir_version = opset, IR_VERSIONS[opset]
    proto.producer_name, proto.producer_version = "qat", version("qat")
    for key, value in _metadata(model, run).items():
        proto.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString(deterministic=True)


def _random_batch(args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Random tensors of the shapes and ranges of an example, with another batch size."""
    generator = torch.Generator().manual_seed(0)
    batch = []
    for x in args:
        low, high = x.min().item(), x.max().item()
        high = high if high > low else low + 1
        new = torch.rand(5, *x.shape[1:], generator=generator) * (high - low) + low
        batch.append(new.to(x.device, x.dtype))
    return tuple(batch)


def _metadata(model: nn.Module, run: str) -> dict[str, str]:
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

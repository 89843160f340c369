"""Writes a model as an ONNX file, and runs the file before it is written."""

import json
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from qat.export.onnx.barriers import add_barriers
from qat.export.onnx.graph_breaks import refuse_graph_breaks
from qat.export.onnx.runtime_copy import runtime_copy
from qat.export.onnx.torch_export import clean, torch_export
from qat.export.onnx.verify import refuse_differences
from qat.export.readiness import activation_quantizers, check_ready, layer_of
from qat.export.torch_state import default_torch_state
from qat.export.trained_model import float32_model
from qat.layers import QuantLayer
from qat.names import check_class_names
from qat.quantizers import Quantizer
from qat.whole_file import check_folder, write_whole

# The format version of a file by its opset. Opset 21 added types of 4 bits, 25 those of 2 bits.
IR_VERSIONS = {21: 10, 22: 10, 23: 11, 24: 12, 25: 13}


@default_torch_state()
def export_onnx(
    model: nn.Module,
    example: Tensor | tuple[Tensor, ...],
    path: str | Path,
    *,
    opset: int | None = None,
    fold: bool = False,
    run: str = "",
    class_names: Sequence[str] | None = None,
) -> Path:
    """Write a model as an ONNX file that computes what the model computes in eval mode.

    Weights are stored as integers: INT2 for 1 and 2 bits, INT4 for 3 and 4, INT8 for 5 to 8, INT16; below
    opset 25, INT4 takes the place of INT2. Activations go through QuantizeLinear and
    DequantizeLinear, after a Clip if the type holds more codes than the grid. The batch size is dynamic. The
    metadata hold the bits of each layer, the run and the versions. The same model gives the same bytes.

    The model's state, mode, dtype, device and gradients stay unchanged; the file computes what the model does
    in float32, without autocast. Before the file is written it is run in onnxruntime on a batch of random
    images, within the range of the example and up to 20 times beyond it, with each level of graph
    optimizations. Each image on which it differs from the model must be traced to a code that lies on a tie.

    Args:
        model: a quantized model that was trained or calibrated, or a float one; it returns one tensor.
        example: `(N, C, H, W)`, or a tuple of arguments that each have the batch first.
        path: path of the file; it is written whole or not at all.
        opset: 21 to 25; by default the oldest that has the narrowest types, 25 if a grid has 1 or 2 bits and
            otherwise 21.
        fold: whether a BatchNorm between a layer and its activation is folded into the layer's scales and
            bias. A `deployable` model has none left.
        run: where the model comes from, for the metadata.
        class_names: the name of each class, for the metadata: `class_names`, a list in JSON.

    Raises:
        ValueError: the model is not ready (never calibrated, in a float phase), leaves the graph (through
            NumPy) or cannot be exported, the file computes something else, or the opset is not supported.
    """
    if opset is not None and opset not in IR_VERSIONS:
        raise ValueError(f"opset must be one of {', '.join(map(str, IR_VERSIONS))}; got {opset}")
    path = check_folder(path)  # before the work
    args = example if isinstance(example, tuple) else (example,)
    for x in args:
        if not (isinstance(x, Tensor) and x.is_floating_point() and x.dim()):
            got = getattr(x, "dtype", type(x).__name__)
            raise ValueError(f"example must be of batches of floating-point numbers; got {got}")
    model, args = float32_model(model), tuple(x.detach().float() for x in args)
    content = onnx_bytes(model, args, opset, fold, run, class_names)
    refuse_differences(model, content, _random_batch(args, 20 if activation_quantizers(model) else 1))
    return write_whole(path, content)


def onnx_bytes(
    model: nn.Module,
    args: tuple[Tensor, ...],
    opset: int | None,
    fold: bool,
    run: str,
    class_names: Sequence[str] | None = None,
) -> bytes:
    """The content of the file, not yet compared with the model."""
    check_ready(model)
    _check_names(model)
    # torch.export takes a batch of one for a constant.
    args = tuple(torch.cat([x, x])[:2] if len(x) < 2 else x for x in args)
    refuse_graph_breaks(model, args)
    args = tuple(x.cpu() for x in args)
    opset = opset or _oldest_opset(model)
    proto = torch_export(runtime_copy(model, args, opset, fold), args)
    add_barriers(proto.graph)
    clean(proto)
    _refuse_two_producers(proto.graph)
    proto.opset_import[0].version, proto.ir_version = opset, IR_VERSIONS[opset]
    proto.producer_name, proto.producer_version = "qat", version("qat")
    metadata = _metadata(model, run)
    if class_names is not None:
        sizes = [size.dim_value for size in proto.graph.output[0].type.tensor_type.shape.dim]
        names = check_class_names(class_names, sizes[1] if len(sizes) > 1 else 0)
        metadata["class_names"] = json.dumps(names)
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString(deterministic=True)


def _check_names(model: nn.Module) -> None:
    """Refuse names that torch's exporter cannot write into the code of a graph."""
    for name in (*dict(model.named_modules()), *dict(model.named_parameters()), *dict(model.named_buffers())):
        if not name.isprintable() or set(name) & set("'\"\\"):
            raise ValueError(
                f"the name {name!r} must be of printable characters without quotes and backslashes; rename "
                "the module or parameter"
            )


def _oldest_opset(model: nn.Module) -> int:
    grids = [module.grid for module in model.modules() if isinstance(module, Quantizer)]
    return 25 if any(grid.bits <= 2 for grid in grids) else 21


def _refuse_two_producers(graph: onnx.GraphProto) -> None:
    """Refuse names that two values have; a parameter called `input` leads to one, for instance."""
    made = [name for node in graph.node for name in node.output]
    names = Counter([*made, *(x.name for x in graph.input), *(x.name for x in graph.initializer)])
    for name, count in names.items():
        if count > 1:
            raise ValueError(
                f"two values of the file would be called {name!r}; rename the parameter or module"
            )


def _random_batch(args: tuple[Tensor, ...], factor: int) -> tuple[Tensor, ...]:
    """Random tensors of the shapes of an example, with another batch size.

    Five lie within the range of the example and three in one that is larger by a factor. In one all elements
    are its largest number, and in one its smallest.
    """
    generator = torch.Generator().manual_seed(0)
    batch = []
    for x in args:
        low, high = x.min().item(), x.max().item()
        high = high if high > low else low + 1
        new = torch.rand(10, *x.shape[1:], generator=generator) * (high - low) + low
        end = factor * max(-low, high)
        new[5:8] = (2 * torch.rand(3, *x.shape[1:], generator=generator) - 1) * end
        new[8], new[9] = end, -end
        batch.append((new[:5] if factor == 1 else new).to(x.device))
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
        "run": run.encode("utf-8", "backslashreplace").decode(),  # a path may hold what is no UTF-8
        "versions": json.dumps(versions, sort_keys=True),
    }

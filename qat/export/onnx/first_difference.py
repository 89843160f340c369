"""The first code that differs between a model and its ONNX file, and how near to a tie it lay."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qat.export.agreement import TIE
from qat.export.onnx.session import run_onnx
from qat.export.readiness import layer_of
from qat.export.trained_model import BATCH, QuantizerCall, codes_of_trained, numbered

PRECISION = 2.0**-20  # of a float32 sum of a few hundred terms; 16 bits resolve more than that

Pairs = list[tuple[QuantizerCall, NDArray[Any]]]  # a call in the model, and the codes in the file


@dataclass(frozen=True)
class CodeDifference:
    """One image on which a model and its file differ."""

    image: int  # its index
    layer: str  # the layer whose codes differ first; "" if all codes are equal
    codes: int  # number of codes of that layer that differ
    from_tie: float  # the largest distance of their `x / scale`, as the model computes it, from a half
    tie: float = TIE  # up to here the distance is one of float32's last bits; more than 1e-3 only at 16 bits

    @property
    def is_tie(self) -> bool:
        """Whether rounding explains the difference: the last bits of a sum decided between two codes."""
        return self.from_tie <= self.tie


def first_differences(
    model: nn.Module, content: bytes, args: tuple[Tensor, ...], images: NDArray[np.int64], level: str
) -> list[CodeDifference]:
    """The first differing code of each image at these indices; `content` is that of the file."""
    if not len(images):
        return []
    found: list[CodeDifference] = []
    names, content = _with_codes_as_outputs(content)
    # The batches are those of the first run, because torch adds in another order if the batch size differs.
    for start in range(0, len(args[0]), BATCH):
        rows = images[(images >= start) & (images < start + BATCH)] - start
        if len(rows):
            batch = tuple(x[start : start + BATCH] for x in args)
            pairs = _pairs(model, names, content, batch, level)
            found += [_first_difference(start + int(row), int(row), pairs) for row in rows]
    return found


def _pairs(
    model: nn.Module, names: list[str], content: bytes, batch: tuple[Tensor, ...], level: str
) -> Pairs:
    """The codes of both for one batch."""
    calls = _as_in_file(codes_of_trained(model, batch), names)
    _, *outputs = run_onnx(content, batch, level, "codes")
    codes = dict(zip(numbered(names), outputs, strict=True))
    keys = numbered([call.name for call in calls])
    return [(call, codes[key]) for call, key in zip(calls, keys, strict=True) if key in codes]


def _as_in_file(calls: list[QuantizerCall], names: list[str]) -> list[QuantizerCall]:
    """The calls without those that torch's exporter merged: a quantizer that runs twice on one tensor."""
    counts, kept = Counter(call.name for call in calls), list[QuantizerCall]()
    for call in calls:
        merged = names.count(call.name) < counts[call.name]
        earlier = (one for one in kept if one.name == call.name)
        if not (merged and any(torch.equal(one.steps, call.steps) for one in earlier)):
            kept.append(call)
    return kept


def _first_difference(image: int, row: int, pairs: Pairs) -> CodeDifference:
    for call, codes in pairs:
        differs = call.codes[row].numpy() != codes[row]
        if differs.any():
            steps = call.steps[row].numpy()[differs]
            from_tie = np.abs(steps - np.floor(steps) - 0.5).max()
            tie = max(TIE, PRECISION * call.levels)
            return CodeDifference(image, layer_of(call.name), int(differs.sum()), float(from_tie), tie)
    return CodeDifference(image, "", 0, float("inf"))


def _with_codes_as_outputs(content: bytes) -> tuple[list[str], bytes]:
    """The names of the quantizers, and a file in which the codes of each one are a further output."""
    proto, names = onnx.load_from_string(content), []
    for node in list(proto.graph.node):
        if node.op_type == "QuantizeLinear":
            names.append(node.input[2].removesuffix(".zero_point"))
            codes = f"{node.output[0]}/codes"
            cast = onnx.helper.make_node("Cast", [node.output[0]], [codes], to=onnx.TensorProto.INT32)
            proto.graph.node.append(cast)
            proto.graph.output.append(onnx.helper.make_tensor_value_info(codes, onnx.TensorProto.INT32, None))
    return names, proto.SerializeToString()

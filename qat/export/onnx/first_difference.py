"""Where two runs of one network part: the first code that differs, and how near to a tie it lay."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from torch import Tensor, nn

from qat.export.onnx.checks import layer_of
from qat.export.onnx.session import open_session, run_session
from qat.export.trained import BATCH, Seen, codes_of_trained

TIE = 1e-3  # in steps of the grid: float32 sums of a few hundred terms in another order move a value less


@dataclass(frozen=True)
class Difference:
    """One image on which two runs differ.

    Args:
        image: its index.
        layer: whose codes differ first; "": no code does.
        codes: how many codes of that layer differ.
        from_tie: how far the farthest of them, `x / scale` as the model computes it, lies from a half.
    """

    image: int
    layer: str
    codes: int
    from_tie: float

    @property
    def is_tie(self) -> bool:
        """Whether rounding explains the difference: the last bits of a sum decided between two codes."""
        return self.from_tie <= TIE


def first_differences(
    model: nn.Module, content: bytes, args: tuple[Tensor, ...], images: NDArray[np.int64]
) -> list[Difference]:
    """The first differing code of each of these images, between a model and its ONNX file.

    Args:
        model: as it was exported.
        content: of the file.
        args: the arguments for all images.
        images: indices of those that differ.
    """
    found: list[Difference] = []
    names, with_codes = _with_codes(content)
    # In the batches of the first run: torch adds in another order where the batch has another size.
    for start in range(0, len(args[0]), BATCH):
        rows = images[(images >= start) & (images < start + BATCH)] - start
        if len(rows):
            batch = tuple(x[start : start + BATCH] for x in args)
            pairs = _pairs(codes_of_trained(model, batch), names, with_codes, batch)
            found += [_first(start + int(row), int(row), pairs) for row in rows]
    return found


def _pairs(
    seen: list[Seen], names: list[str], with_codes: bytes, batch: tuple[Tensor, ...]
) -> list[tuple[Seen, NDArray[Any]]]:
    """The codes of both for one batch, by name and call.

    Where two quantizers are the same, torch's exporter keeps one of them; the other has no pair.
    """
    outputs = run_session(open_session(with_codes, optimised=False), batch, "codes")[-len(names) or None :]
    codes = {
        (name, names[:i].count(name)): output
        for i, (name, output) in enumerate(zip(names, outputs, strict=True))
    }
    calls = [one.name for one in seen]
    keys = [(name, calls[:i].count(name)) for i, name in enumerate(calls)]
    return [(one, codes[key]) for one, key in zip(seen, keys, strict=True) if key in codes]


def _first(image: int, row: int, pairs: list[tuple[Seen, NDArray[Any]]]) -> Difference:
    for one, other in pairs:
        differs = one.codes[row].numpy() != other[row]
        if differs.any():
            steps = one.steps[row].numpy()[differs]
            from_tie = np.abs(steps - np.floor(steps) - 0.5).max()
            return Difference(image, layer_of(one.name), int(differs.sum()), float(from_tie))
    return Difference(image, "", 0, float("inf"))


def _with_codes(content: bytes) -> tuple[list[str], bytes]:
    """The file with what each QuantizeLinear gives as a further output, and the names of the quantizers."""
    proto, names = onnx.load_from_string(content), []
    for node in list(proto.graph.node):
        if node.op_type == "QuantizeLinear":
            names.append(node.name.removesuffix("/QuantizeLinear"))
            codes = f"{node.output[0]}/codes"
            cast = onnx.helper.make_node("Cast", [node.output[0]], [codes], to=onnx.TensorProto.INT32)
            proto.graph.node.append(cast)
            proto.graph.output.append(onnx.helper.make_tensor_value_info(codes, onnx.TensorProto.INT32, None))
    return names, proto.SerializeToString()

"""Compares an ONNX file with the trained model."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from qat.export.agreement import TOLERANCE, Agreement, agree
from qat.export.onnx.first_difference import CodeDifference, first_differences
from qat.export.onnx.session import LEVELS, OFF, ON, run_onnx
from qat.export.trained_model import run_trained

FloatArray = NDArray[np.float32]


@dataclass(frozen=True)
class Verification:
    """An ONNX file against the model that it was made from."""

    off: Agreement  # with graph optimizations off: the file is computed as it is written
    on: Agreement  # with all graph optimizations on, onnxruntime's default
    differences: list[CodeDifference]  # the first one of each image not within 1e-4, optimizations off
    differences_on: list[CodeDifference] = field(default_factory=list)  # the same with optimizations on

    @property
    def unexplained(self) -> list[CodeDifference]:
        """The differences that are not ties. If there are any, the file is wrong."""
        return [one for one in (*self.differences, *self.differences_on) if not one.is_tie]


def verify(model: nn.Module, file: str | Path | bytes, images: Tensor | tuple[Tensor, ...]) -> Verification:
    """Run an ONNX file in onnxruntime and compare it with the trained model in eval mode.

    Args:
        model: the model that the file was exported from; it stays unchanged.
        file: the path of the file, or its content.
        images: `(N, C, H, W)`, for example the whole test set; or a tuple of arguments.
    """
    content = file if isinstance(file, bytes) else Path(file).read_bytes()
    args = images if isinstance(images, tuple) else (images,)
    trained = run_trained(model, args, "trained model")
    off, differences = _compare(model, trained, content, args, OFF)
    on, differences_on = _compare(model, trained, content, args, ON)
    return Verification(agree(trained, off), agree(trained, on), differences, differences_on)


def refuse_differences(model: nn.Module, content: bytes, args: tuple[Tensor, ...]) -> None:
    """Run a file with each level of optimizations, and refuse it if it differs by anything but a tie."""
    trained = run_trained(model, args, "trained model")
    for level in LEVELS:
        for difference in _compare(model, trained, content, args, level)[1]:
            if not difference.is_tie:
                where = (
                    f"first in {difference.layer}" if difference.layer else "in no code, but in its output"
                )
                raise ValueError(
                    f"the file does not compute what the model does: on a second random batch it differs, "
                    f"{where}; does a forward depend on more than its input, or leave torch?"
                    + ("" if level == OFF else f" (onnxruntime's optimizations: {level})")
                )


def _compare(
    model: nn.Module, trained: FloatArray, content: bytes, args: tuple[Tensor, ...], level: str
) -> tuple[FloatArray, list[CodeDifference]]:
    """The outputs of the file, and its differences from those of the model that exceed the tolerance."""
    found = run_onnx(content, args, level, f"onnxruntime, {level}")[0]
    if trained.shape != found.shape:
        raise ValueError(f"the file gives {found.shape} for a batch where the model gives {trained.shape}")
    equal = (trained == found) | (np.isnan(trained) & np.isnan(found))
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        distance = np.where(equal, 0, np.abs(trained - found)).reshape(len(trained), -1).max(axis=1)
    # Outputs in the thousands cannot agree to 1e-4 in float32.
    largest = np.nan_to_num(np.abs(trained), posinf=0).reshape(len(trained), -1).max(axis=1, initial=0)
    limit = TOLERANCE * np.maximum(1, largest)
    return found, first_differences(model, content, args, np.flatnonzero(~(distance <= limit)), level)

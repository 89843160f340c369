"""Compares an ONNX file with the trained model."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from qat.export.agreement import TOLERANCE, Agreement, agree
from qat.export.onnx.first_difference import CodeDifference, first_differences
from qat.export.onnx.session import run_onnx
from qat.export.trained_model import run_trained

FloatArray = NDArray[np.float32]


@dataclass(frozen=True)
class Verification:
    """An ONNX file against the model that it was made from."""

    off: Agreement  # with graph optimizations off: the file is computed as it is written
    on: Agreement  # with all graph optimizations on, onnxruntime's default
    differences: list[CodeDifference]  # the first one of each image not within 1e-4, optimizations off

    @property
    def unexplained(self) -> list[CodeDifference]:
        """The differences that are not ties. If there are any, the file is wrong."""
        return [difference for difference in self.differences if not difference.is_tie]


def verify(model: nn.Module, file: str | Path | bytes, images: Tensor | tuple[Tensor, ...]) -> Verification:
    """Run an ONNX file in onnxruntime and compare it with the trained model in eval mode.

    Args:
        model: the model that the file was exported from; it stays unchanged.
        file: the path of the file, or its content.
        images: `(N, C, H, W)`, for example the whole test set; or a tuple of arguments.
    """
    content = file if isinstance(file, bytes) else Path(file).read_bytes()
    args = images if isinstance(images, tuple) else (images,)
    trained, off, differences = _compare(model, content, args)
    on = run_onnx(content, args, True, "onnxruntime, optimized")[0]
    return Verification(agree(trained, off), agree(trained, on), differences)


def refuse_differences(model: nn.Module, content: bytes, args: tuple[Tensor, ...]) -> None:
    """Run a file on one batch, and refuse it if it differs from the model by anything but a tie."""
    for difference in _compare(model, content, args)[2]:
        if not difference.is_tie:
            where = f"first in {difference.layer}" if difference.layer else "in no code, but in its output"
            raise ValueError(
                "the file does not compute what the model does: on a second random batch it differs, "
                f"{where}; does a forward depend on more than its input, or leave torch?"
            )


def _compare(
    model: nn.Module, content: bytes, args: tuple[Tensor, ...]
) -> tuple[FloatArray, FloatArray, list[CodeDifference]]:
    """The outputs of the model and of the file, and the differences that exceed the tolerance."""
    trained = run_trained(model, args, "trained model")
    off = run_onnx(content, args, False, "onnxruntime")[0]
    if trained.shape != off.shape:
        raise ValueError(f"the file gives {off.shape} for a batch where the model gives {trained.shape}")
    distance = np.abs(trained - off).reshape(len(trained), -1).max(axis=1)
    # Logits in the thousands cannot agree to 1e-4 in float32.
    limit = TOLERANCE * max(1.0, float(np.abs(trained).max(initial=0)))
    return trained, off, first_differences(model, content, args, np.flatnonzero(~(distance <= limit)))

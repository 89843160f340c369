"""The proof: the file gives the answers that the trained model gives."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from qat.export.onnx.first_difference import Difference, first_differences
from qat.export.onnx.session import open_session, run_session
from qat.export.trained import run_trained

TOLERANCE = 1e-4  # of a logit; sums of floats in another order differ by less


@dataclass(frozen=True)
class Agreement:
    """How the answers of two implementations compare.

    Args:
        images: how many.
        same_class: on how many both predict the same class (the first largest logit).
        within: on how many no logit differs by more than 1e-4.
        equal: on how many all logits are equal to the last bit.
        largest: the largest difference of a logit.
    """

    images: int
    same_class: int
    within: int
    equal: int
    largest: float

    def __str__(self) -> str:
        return (
            f"same class {self.same_class} of {self.images}, within 1e-4 {self.within}, equal {self.equal}, "
            f"largest difference {self.largest:.3g}"
        )


@dataclass(frozen=True)
class Verification:
    """An ONNX file against the model that it was made from.

    Args:
        off: the agreement with graph optimisations off, where the file is computed as it is written.
        on: with all of them on, as it is usually run.
        differences: the first differing code of each image that is not within 1e-4, optimisations off.
    """

    off: Agreement
    on: Agreement
    differences: list[Difference]

    @property
    def unexplained(self) -> list[Difference]:
        """The differences that are no tie: there are none unless the file is wrong."""
        return [difference for difference in self.differences if not difference.is_tie]


def verify(model: nn.Module, file: str | Path | bytes, images: Tensor | tuple[Tensor, ...]) -> Verification:
    """Run an ONNX file in onnxruntime and compare it with the trained model in eval mode.

    Args:
        model: what the file was exported from; it stays as it is.
        file: its path, or its content.
        images: `(N, C, H, W)`, the whole test set, say; or a tuple of arguments.
    """
    content = file if isinstance(file, bytes) else Path(file).read_bytes()
    args = images if isinstance(images, tuple) else (images,)
    trained = run_trained(model, args, "trained model")
    off = run_session(open_session(content, optimised=False), args, "onnxruntime")[0]
    on = run_session(open_session(content, optimised=True), args, "onnxruntime, optimised")[0]
    return Verification(
        agree(trained, off), agree(trained, on), _differences(model, content, args, trained, off)
    )


def agree(trained: NDArray[Any], other: NDArray[Any]) -> Agreement:
    """Compare logits `(N, classes)` with logits."""
    first, second = (logits.reshape(len(logits), -1) for logits in (trained, other))
    far = np.abs(first.astype(np.float64) - second).max(axis=1)
    return Agreement(
        images=len(first),
        same_class=int((first.argmax(axis=1) == second.argmax(axis=1)).sum()),
        within=int((far <= TOLERANCE).sum()),
        equal=int((first == second).all(axis=1).sum()),
        largest=float(far.max()),
    )


def explain_or_refuse(model: nn.Module, content: bytes, args: tuple[Tensor, ...]) -> None:
    """Run a file on one batch, and refuse it where it differs from the model for any cause but a tie.

    Raises:
        ValueError: it does; the message names the layer whose codes differ first.
    """
    trained = run_trained(model, args, "trained model")
    off = run_session(open_session(content, optimised=False), args, "onnxruntime")[0]
    if trained.shape != off.shape:
        raise ValueError(f"the file gives {off.shape} for a batch where the model gives {trained.shape}")
    for difference in _differences(model, content, args, trained, off):
        if not difference.is_tie:
            where = f"first in {difference.layer}" if difference.layer else "in no code, but in its output"
            raise ValueError(
                f"the file does not compute what the model does: on a second random batch it differs, "
                f"{where}; "
                "does a forward depend on more than its input, or leave torch?"
            )


def _differences(
    model: nn.Module, content: bytes, args: tuple[Tensor, ...], trained: NDArray[Any], other: NDArray[Any]
) -> list[Difference]:
    far = np.abs(trained - other).reshape(len(trained), -1).max(axis=1)
    # Logits in the thousands cannot agree to 1e-4 in float32.
    limit = TOLERANCE * max(1.0, float(np.abs(trained).max(initial=0)))
    return first_differences(model, content, args, np.flatnonzero(~(far <= limit)))

"""The trained network in integers alone, run on the CPU as the reference for what is deployed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from qat.export.integers import reader
from qat.export.integers.lowering import lower
from qat.export.integers.program import Accumulator, Program
from qat.export.onnx.verify import Agreement, agree
from qat.export.trained import codes_of_trained, run_trained
from qat.progress import tracked

BATCH = 50  # images at a time
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class IntegerAgreement:
    """The integer network against the trained one.

    Args:
        logits: how they compare; `equal` means to the last bit.
        integers: the logits of the integer network, `(N, classes)`.
        classes: what it predicts for each image.
        predictions: how many images it puts into another class.
        codes: how many codes differ, of how many, for each quantizer of activations by its layer.
    """

    logits: Agreement
    integers: Integers
    classes: Integers
    predictions: int
    codes: dict[str, tuple[int, int]]


class IntegerModel:
    """A trained network in integers: codes in, int32 accumulators, multiplication and shift, int32 logits.

    A convolution or linear layer adds `(code - zero point) * weight code` in int32; that no sum overflows is
    proved from the weights (`accumulators`). Sums go to the next grid as `round((sum of term * multiplier +
    bias) / 2^shift)`, half to even, with 31-bit multipliers, or with none where the scales are powers of
    two. Pooling takes the largest code, or adds codes and divides once, at the rescaling; residual sums are
    rescaled together. BatchNorm is in multipliers and biases.

    Args:
        model: quantized, and trained or calibrated.
        shape: `(C, H, W)` of one image.

    Raises:
        ValueError: the model is not ready, sums may overflow, or an operation has no form in integers.

    Attributes:
        program: the steps; `program.is_exact` says that the trained model must agree to the last bit.
    """

    def __init__(self, model: nn.Module, shape: tuple[int, int, int]) -> None:
        self.model = model
        self.program: Program = lower(model, shape)
        self._steps, self._arrays = readable(self.program)

    @property
    def accumulators(self) -> list[Accumulator]:
        """What is proved of each layer's sums."""
        return self.program.accumulators

    def codes(self, images: Tensor) -> Integers:
        """The input's codes. Shape: `(N, C, H, W)` -> the same."""
        grid = self._steps[0]
        steps = np.rint(images.cpu().numpy().astype(np.float32) / np.float32(grid["scale"]))
        return np.clip(steps + grid["zero"], grid["low"], grid["high"]).astype(np.int64)

    def __call__(self, codes: Integers) -> Integers:
        """Logits in units of `program.output_scale`. Shape: `(N, C, H, W)` -> `(N, classes)`."""
        parts = [values[-1] for values in self._run(codes, "integers")]
        return np.concatenate(parts).reshape(len(codes), -1)

    def predict(self, images: Tensor) -> Integers:
        """The class of each image, the first with the largest logit. Shape: `(N, C, H, W)` -> `(N,)`."""
        return self(self.codes(images)).argmax(axis=1)

    def compare(self, images: Tensor) -> IntegerAgreement:
        """Run both networks on images and count what differs."""
        trained = run_trained(self.model, (images,), "trained model")
        found: dict[str, tuple[int, int]] = {}
        logits = []
        names = {step.layer: number for number, step in enumerate(self.program.steps) if step.op == "rescale"}
        names[self.program.steps[0].layer] = 0
        starts = range(0, len(images), BATCH)
        for start, values in zip(starts, self._run(self.codes(images), "integers"), strict=True):
            logits.append(values[-1])
            for seen in codes_of_trained(self.model, (images[start : start + BATCH],)):
                if seen.name not in names:  # of a layer that runs for nothing
                    continue
                own = values[names[seen.name]].reshape(seen.codes.shape)
                differ, total = found.get(seen.name, (0, 0))
                found[seen.name] = differ + int((own != seen.codes.numpy()).sum()), total + own.size
        own = np.concatenate(logits).reshape(len(images), -1)
        agreement = agree(trained, own * self.program.output_scale)
        differ = agreement.images - agreement.same_class
        return IntegerAgreement(agreement, own, own.argmax(axis=1), differ, found)

    def _run(self, codes: Integers, description: str) -> Iterator[list[Any]]:
        for start in tracked(range(0, len(codes), BATCH), description):
            yield reader.run(self._steps, self._arrays, codes[start : start + BATCH])


def readable(program: Program) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A program in the plain form that `reader.py` runs."""
    steps: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for number, step in enumerate(program.steps):
        plain = {"op": step.op, "layer": step.layer, "inputs": list(step.inputs), "arrays": list(step.arrays)}
        steps.append(plain | step.settings)
        arrays |= {f"{number}.{name}": array for name, array in step.arrays.items()}
    return steps, arrays

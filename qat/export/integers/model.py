"""The trained network in integers alone, run on the CPU as the reference for what is deployed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from qat.export.agreement import Agreement, agree
from qat.export.integers import reader
from qat.export.integers.lowering import lower
from qat.export.integers.program import IntArray, Program, ReaderInput
from qat.export.trained_model import codes_of_trained, numbered, run_trained
from qat.names import check_class_names
from qat.progress import tracked

BATCH = 50  # images
GRID_STEPS = ("input", "rescale")  # the steps that are named after a quantizer


@dataclass(frozen=True)
class IntegerAgreement:
    """The integer network against the trained one."""

    logits: Agreement  # `equal` means to the last bit
    integers: IntArray = field(repr=False)  # the logits of the integer network, (N, classes)
    codes: dict[str, tuple[int, int]]  # by quantizer of activations: how many differ, and how many there are

    @property
    def predictions(self) -> int:
        """Number of images for which it predicts another class."""
        return self.logits.images - self.logits.same_class

    @property
    def differing_codes(self) -> int:
        """Number of codes that differ in all layers."""
        return sum(differ for differ, _ in self.codes.values())


class IntegerModel:
    """A trained network in integers: codes in, int32 accumulators, multiplication and shift, int32 logits.

    A convolution or linear layer adds `(code - zero point) * weight code` in int32; the weights prove that no
    sum overflows (`program.accumulators`). A sum is brought to the next grid as `round((sum of term *
    multiplier + bias) / 2^shift)`, half to even, with 31-bit multipliers, or without one if the scales are
    powers of two. Max-pooling takes the largest code; average pooling adds codes and divides once, in the
    rescaling. The terms of a residual sum are rescaled together. BatchNorm is part of multipliers and biases.

    Args:
        model: a quantized model that was trained or calibrated.
        shape: `(C, H, W)` of one image.

    Raises:
        ValueError: the model is not ready, sums may overflow, or an operation has no form in integers.

    Attributes:
        program: the steps; if `program.is_exact`, the trained model agrees to the last bit.
    """

    def __init__(self, model: nn.Module, shape: tuple[int, ...]) -> None:
        self.model = model
        self.program: Program = lower(model, shape)
        self._network = self.program.for_reader()

    def __repr__(self) -> str:
        return f"IntegerModel({self.program})"

    def codes(self, images: Tensor) -> IntArray:
        """The codes of the input. Shape: `(N, C, H, W)` -> the same."""
        grid = self.program.steps[0].settings
        steps = np.rint(images.cpu().numpy().astype(np.float32) / np.float32(grid["scale"]))
        return np.clip(steps + grid["zero"], grid["low"], grid["high"]).astype(np.int64)

    def pixel_codes(self) -> IntArray:
        """The code of each pixel byte p, which stands for the value p / 255. Shape: `(256,)`."""
        return self.codes(torch.arange(256) / 255)

    def __call__(self, codes: IntArray) -> IntArray:
        """Logits in units of `program.output_scale`. Shape: `(N, C, H, W)` -> `(N, classes)`."""
        return integer_logits(self._network, codes, "integers")

    def predict(self, images: Tensor) -> IntArray:
        """The class of each image: the first with the largest logit. Shape: `(N, C, H, W)` -> `(N,)`."""
        return self(self.codes(images)).argmax(axis=1)

    def check_class_names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """The names of the classes; empty for None. Raises ValueError if there is not one for each logit."""
        return () if names is None else check_class_names(names, self.program.steps[-1].shape[0])

    def compare(self, images: Tensor) -> IntegerAgreement:
        """Run both networks on images `(N, C, H, W)` and count what differs."""
        trained = run_trained(self.model, (images,), "trained model")
        codes: dict[str, tuple[int, int]] = {}
        parts = []
        on_grid = [n for n, step in enumerate(self.program.steps) if step.op in GRID_STEPS]
        keys = numbered([self.program.steps[n].layer for n in on_grid])
        numbers = dict(zip(keys, on_grid, strict=True))
        starts = range(0, len(images), BATCH)
        batches = _run_in_batches(self._network, self.codes(images), "integers")
        for start, values in zip(starts, batches, strict=True):
            parts.append(values[-1])
            calls = codes_of_trained(self.model, (images[start : start + BATCH],))
            for call, key in zip(calls, numbered([call.name for call in calls]), strict=True):
                if key not in numbers:  # no other layer reads its output
                    continue
                own = values[numbers[key]].reshape(call.codes.shape)
                differ, total = codes.get(call.name, (0, 0))
                codes[call.name] = differ + int((own != call.codes.numpy()).sum()), total + own.size
        logits = np.concatenate(parts).reshape(len(images), -1)
        return IntegerAgreement(agree(trained, logits * self.program.output_scale), logits, codes)


def integer_logits(network: ReaderInput, codes: IntArray, description: str) -> IntArray:
    """The logits of a network. Shape: `(N, C, H, W)` -> `(N, classes)`."""
    parts = [values[-1] for values in _run_in_batches(network, codes, description)]
    return np.concatenate(parts).reshape(len(codes), -1)


def _run_in_batches(network: ReaderInput, codes: IntArray, description: str) -> Iterator[list[IntArray]]:
    """What each step gives, batch by batch; progress is shown under the description."""
    for start in tracked(range(0, len(codes), BATCH), description):
        yield reader.run(*network, codes[start : start + BATCH])

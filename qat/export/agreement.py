"""How the logits of two implementations of one network compare."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-4  # of a logit; float sums whose terms are added in another order differ by less
TIE = 1e-3  # in steps of a grid; the order of the terms changes float32 sums of a few hundred terms by less


@dataclass(frozen=True)
class Agreement:
    """The logits of a trained model against those of an exported one."""

    images: int  # number of all images
    same_class: int  # of those for which both predict the same class (the first with the largest logit)
    within: int  # of those on which no logit differs by more than 1e-4
    equal: int  # of those on which all logits are equal to the last bit
    largest: float  # the largest difference of a logit

    def __str__(self) -> str:
        return (
            f"same class {self.same_class} of {self.images}, within 1e-4 {self.within}, equal {self.equal}, "
            f"largest difference {self.largest:.3g}"
        )


def agree(trained: NDArray[Any], other: NDArray[Any]) -> Agreement:
    """Compare two arrays of logits, each `(N, classes)`."""
    first, second = (logits.reshape(len(logits), -1) for logits in (trained, other))
    distance = np.abs(first.astype(np.float64) - second).max(axis=1)
    return Agreement(
        images=len(first),
        same_class=int((first.argmax(axis=1) == second.argmax(axis=1)).sum()),
        within=int((distance <= TOLERANCE).sum()),
        equal=int((first == second).all(axis=1).sum()),
        largest=float(distance.max()),
    )

"""What a scale is measured by, and how far one batch moves it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


def largest_magnitude(x: Tensor, axis: int | None) -> Tensor:
    """`max |x|` over the tensor, or over all axes but one, kept for broadcasting.

    Shape: any -> `()`, or for axis 0 of `(O, I, kH, kW)` `(O, 1, 1, 1)`. Float32.
    """
    x = x.detach()
    if axis is None:
        lowest, highest = torch.aminmax(x)  # one pass and no copy, unlike abs().amax()
        return torch.maximum(highest, -lowest).float()
    others = [a for a in range(x.dim()) if a != axis]
    return x.abs().amax(others, keepdim=True).float()


@dataclass(frozen=True)
class Observer:
    """A statistic, and the share of the newest batch in its moving average.

    Args:
        measure: `(x, axis)` -> the magnitude that the highest code stands for.
        share: in (0, 1]; None: no memory at all, the scale follows the tensor as it is now in every mode
            (weights).
    """

    measure: Callable[[Tensor, int | None], Tensor]
    share: float | None


ObserverName = Literal["max", "ema"]
OBSERVERS: dict[str, Observer] = {
    "max": Observer(largest_magnitude, share=None),
    "ema": Observer(largest_magnitude, share=0.1),
}

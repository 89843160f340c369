"""Gradients by central differences, for comparison with those of autograd."""

from collections.abc import Callable

import torch
from torch import Tensor

STEP = 1e-6  # in float64 the error is about 1e-10
TOLERANCE = 1e-4  # the gradients that are compared are float32


def central_differences(
    function: Callable[..., Tensor], inputs: dict[str, Tensor], seed: Tensor
) -> dict[str, Tensor]:
    """The gradient of `sum(seed * function(*inputs))`, in float64, for each input that requires one."""
    points = {name: x.detach().double() for name, x in inputs.items()}
    found = {name: torch.zeros_like(points[name]) for name, x in inputs.items() if x.requires_grad}

    def value_at(name: str, x: Tensor) -> Tensor:
        moved = (points | {name: x}).values()
        return (function(*(x.clone() for x in moved)) * seed).sum()  # it may work in place

    with torch.no_grad():
        for name, gradient in found.items():
            for n in range(gradient.numel()):
                step = torch.zeros_like(gradient)
                step.view(-1)[n] = STEP
                above, below = value_at(name, points[name] + step), value_at(name, points[name] - step)
                gradient.view(-1)[n] = (above - below) / (2 * STEP)
    return found


def is_close(gradient: Tensor | None, differences: Tensor) -> bool:
    """Whether a gradient equals its central differences; `None` counts as zero."""
    found = torch.zeros_like(differences) if gradient is None else gradient.double()
    return torch.allclose(found, differences, TOLERANCE, TOLERANCE)

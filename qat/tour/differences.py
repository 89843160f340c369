"""Gradients by central differences, to compare with."""

from collections.abc import Callable

import torch
from torch import Tensor

STEP = 1e-6  # in float64: the error is about 1e-10
TOLERANCE = 1e-4  # the gradients that are compared are float32


def central_differences(
    check: Callable[..., Tensor], leaves: dict[str, Tensor], seed: Tensor
) -> dict[str, Tensor]:
    """The gradient of `sum(seed * check(**leaves))` by central differences in float64."""
    points = {name: x.detach().double().clone() for name, x in leaves.items()}
    found = {name: torch.zeros_like(x) for name, x in points.items()}

    def value() -> float:
        return (check(**points) * seed).sum().item()

    with torch.no_grad():
        for name, x in points.items():
            flat, result = x.view(-1), found[name].view(-1)
            for n in range(x.numel()):
                before = flat[n].item()
                flat[n] = before + STEP
                above = value()
                flat[n] = before - STEP
                result[n] = (above - value()) / (2 * STEP)
                flat[n] = before
    return found


def close(gradient: Tensor | None, differences: Tensor) -> bool:
    """Whether a gradient, `None` being zero, equals its central differences."""
    found = torch.zeros_like(differences) if gradient is None else gradient.double()
    return torch.allclose(found, differences, TOLERANCE, TOLERANCE)

"""What reaches the operators, seen from outside."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

OPERATORS = ("conv1d", "conv2d", "linear", "conv_transpose2d")


class Spy(TorchFunctionMode):
    """Counts the values of both operands of each convolution and linear function, module or not."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.__name__ in OPERATORS:
            x, weight = args[:2]
            channels = weight
            if func.__name__ == "conv_transpose2d":  # (I, O / groups, ...); `groups` is the seventh argument
                channels = weight.unflatten(0, (args[6], -1)).transpose(1, 2).flatten(0, 1)
            self.seen.append((len(x.unique()), max(map(_steps, channels))))
        return func(*args, **(kwargs or {}))


def _steps(channel: Tensor) -> int:
    """How many codes the values of a channel would need: a channel of few values could pass for a grid."""
    values = channel.detach().double().unique()
    largest = values.abs().max()
    for high in (1, 3, 7, 127):
        codes = values / largest * high
        if (codes - codes.round()).abs().max() < 1e-4:
            return 2 * high + 1
    return 2**16


@pytest.fixture
def levels() -> Callable[[nn.Module, Tensor], list[tuple[int, int]]]:
    """`levels(model, x)`: how many values the operands of each layer have, as they reach the operator."""

    def count(model: nn.Module, x: Tensor) -> list[tuple[int, int]]:
        with Spy() as spy:
            model(x)
        return spy.seen

    return count

"""A function at one point, ready to be differentiated in every way that a check needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SEED = 0
STEP = 1e-6


@dataclass(frozen=True)
class Case:
    """The function, its arguments (floating-point tensors in float64), and which of them get a gradient.

    Attributes:
        function: tensors and other arguments -> a tensor, or a tuple of tensors.
        arguments: of the function.
        wrt: positions of the arguments to differentiate.
        surrogate: `surrogate(*gs, *arguments)` -> the stated gradients of the arguments in `wrt`, or None.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    wrt: tuple[int, ...]
    surrogate: Callable[..., Any] | None

    @property
    def source(self) -> str:
        """What the true gradient is called."""
        return "numerical" if self.surrogate is None else "stated"

    @property
    def tolerance(self) -> float:
        """Relative: finite differences are good to 1e-3, as in gradcheck; a formula to nearly all digits."""
        return 1e-3 if self.surrogate is None else 1e-9

    def leaves(self) -> list[Any]:
        """Fresh arguments; those in `wrt` require a gradient."""
        fresh = [x.detach().clone() if isinstance(x, Tensor) else x for x in self.arguments]
        for position in self.wrt:
            fresh[position].requires_grad_()
        return fresh

    def outputs(self, arguments: Sequence[Any], seed: int = SEED) -> tuple[Tensor, ...]:
        """The floating-point outputs; random functions repeat themselves, and no generator is moved."""
        devices = {x.device.index for x in arguments if isinstance(x, Tensor) and x.is_cuda}
        with torch.random.fork_rng(devices=sorted(devices)):
            torch.default_generator.manual_seed(seed)
            for device in devices:
                torch.cuda.default_generators[device].manual_seed(seed)
            result = self.function(*arguments)
        results = result if isinstance(result, (tuple, list)) else (result,)
        return tuple(y for y in results if isinstance(y, Tensor) and y.is_floating_point())

    def gradients(
        self, arguments: Sequence[Any], gs: Sequence[Tensor], create_graph: bool = False
    ) -> list[Tensor]:
        """Gradients of the arguments in `wrt`, zeros for None."""
        inputs = [arguments[position] for position in self.wrt]
        return backward(self.outputs(arguments), inputs, gs, create_graph)

    def truth(self, gs: Sequence[Tensor]) -> list[Tensor]:
        """The right gradients: as stated, or by central differences."""
        if self.surrogate is not None:
            return [x.detach() for x in self.stated(gs, self.arguments)]
        with torch.no_grad():
            return numerical(lambda xs: self._inner(xs, gs), self.arguments, self.wrt)

    def stated(self, gs: Sequence[Tensor], arguments: Sequence[Any]) -> list[Tensor]:
        """The surrogate's gradients, with their graph."""
        assert self.surrogate is not None
        result = self.surrogate(*gs, *arguments)
        results = result if isinstance(result, (tuple, list)) else (result,)
        if len(results) != len(self.wrt):
            raise ValueError(
                f"surrogate must return one gradient for each of the {len(self.wrt)} inputs that get one, "
                f"got {len(results)}"
            )
        return [g.expand_as(arguments[i]) for g, i in zip(results, self.wrt, strict=True)]

    def _inner(self, arguments: Sequence[Any], gs: Sequence[Tensor]) -> Tensor:
        return inner(self.outputs(arguments), gs)


def inner(ys: Sequence[Tensor], gs: Sequence[Tensor]) -> Tensor:
    """The sum of all products."""
    return torch.stack([(y * g).sum() for y, g in zip(ys, gs, strict=True)]).sum()


def backward(
    ys: Sequence[Tensor], inputs: Sequence[Tensor], gs: Sequence[Tensor], create_graph: bool = False
) -> list[Tensor]:
    """`torch.autograd.grad` with zeros for None, also where no output has a graph."""
    connected = [(y, g) for y, g in zip(ys, gs, strict=True) if y.requires_grad]
    if not connected:
        return [torch.zeros_like(x) for x in inputs]
    found = torch.autograd.grad(
        [y for y, _ in connected],
        inputs,
        [g for _, g in connected],
        create_graph=create_graph,
        allow_unused=True,
    )
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def numerical(
    scalar: Callable[[Sequence[Any]], Tensor], arguments: Sequence[Any], wrt: Sequence[int]
) -> list[Tensor]:
    """Central differences of a scalar function with respect to every element of some arguments."""
    points = [x.detach().clone() if isinstance(x, Tensor) else x for x in arguments]
    found = []
    for position in wrt:
        values = points[position].view(-1)
        slopes = torch.zeros_like(values)
        for index in range(values.numel()):
            middle = values[index].item()
            values[index] = middle + STEP
            above = scalar([x.clone() if isinstance(x, Tensor) else x for x in points])
            values[index] = middle - STEP
            below = scalar([x.clone() if isinstance(x, Tensor) else x for x in points])
            values[index] = middle
            slopes[index] = (above - below).detach() / (2 * STEP)
        found.append(slopes.view_as(points[position]))
    return found


def upstream(ys: Sequence[Tensor], seed: int = SEED) -> list[Tensor]:
    """Random upstream gradients, none of them near 0; of both signs."""
    generator = torch.Generator().manual_seed(seed)
    gs = []
    for y in ys:
        noise = torch.rand(y.shape, dtype=torch.float64, generator=generator) * 2 - 1
        gs.append((noise + torch.where(noise < 0, -0.5, 0.5)).to(y))
    return gs

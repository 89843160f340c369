"""A function at one point, and its gradients: analytical, numerical and stated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SEED = 0
STEP = 1e-6


@dataclass(frozen=True)
class FunctionAtPoint:
    """A function, its arguments, and its stated gradient, if there is one."""

    function: Callable[..., Any]  # tensors and other arguments -> one tensor or several
    arguments: tuple[Any, ...]  # floating-point tensors are float64
    wrt: tuple[int, ...]  # positions of the arguments to differentiate
    surrogate: Callable[..., Any] | None  # `(*gs, *arguments)` -> the gradients of the arguments in `wrt`

    @property
    def source(self) -> str:
        """What the true gradient is called."""
        return "numerical" if self.surrogate is None else "stated"

    @property
    def tolerance(self) -> float:
        """Relative: 1e-3 for finite differences, as in gradcheck; nearly all digits for a formula."""
        return 1e-3 if self.surrogate is None else 1e-9

    def leaves(self) -> list[Any]:
        """Copies of the arguments; those in `wrt` require a gradient."""
        fresh = [copied(x) for x in self.arguments]
        for x in self.differentiated(fresh):
            x.requires_grad_()
        return fresh

    def differentiated(self, arguments: Sequence[Any]) -> list[Any]:
        """The arguments in `wrt`."""
        return [arguments[position] for position in self.wrt]

    def outputs(self, arguments: Sequence[Any], seed: int = SEED) -> tuple[Tensor, ...]:
        """The floating-point outputs, with the same random numbers each time; no generator moves."""
        devices = {x.device.index for x in arguments if isinstance(x, Tensor) and x.is_cuda}
        with torch.random.fork_rng(devices=sorted(devices)):
            torch.default_generator.manual_seed(seed)
            for device in devices:
                torch.cuda.default_generators[device].manual_seed(seed)
            results = _as_tuple(self.function(*arguments))
        return tuple(y for y in results if isinstance(y, Tensor) and y.is_floating_point())

    def gradients(
        self, arguments: Sequence[Any], gs: Sequence[Tensor], create_graph: bool = False
    ) -> list[Tensor]:
        """The gradients of the arguments in `wrt`, with zeros for None."""
        return backward(self.outputs(arguments), self.differentiated(arguments), gs, create_graph)

    def true_gradients(self, gs: Sequence[Tensor]) -> list[Tensor]:
        """The right gradients: the stated ones, or central differences."""
        if self.surrogate is not None:
            return [x.detach() for x in self.stated_gradients(gs, self.arguments)]
        return central_differences(lambda xs: inner_product(self.outputs(xs), gs), self.arguments, self.wrt)

    def stated_gradients(self, gs: Sequence[Tensor], arguments: Sequence[Any]) -> list[Tensor]:
        """The surrogate's gradients, with their graph."""
        assert self.surrogate is not None
        results = _as_tuple(self.surrogate(*gs, *arguments))
        if len(results) != len(self.wrt):
            rule = f"one gradient for each of the {len(self.wrt)} inputs that get one"
            raise ValueError(f"surrogate must return {rule}, got {len(results)}")
        return [g.expand_as(x) for g, x in zip(results, self.differentiated(arguments), strict=True)]


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def copied(x: Any) -> Any:
    """A contiguous copy of a tensor without its graph; anything else as it is."""
    return x.detach().clone(memory_format=torch.contiguous_format) if isinstance(x, Tensor) else x


@torch.no_grad()
def central_differences(
    scalar: Callable[[Sequence[Any]], Tensor], arguments: Sequence[Any], wrt: Sequence[int]
) -> list[Tensor]:
    """Derivatives of a scalar function with respect to each element of the arguments in `wrt`."""
    points = [copied(x) for x in arguments]

    def moved(element: Tensor, to: float) -> Tensor:
        element.fill_(to)
        return scalar([copied(x) for x in points])

    found = []
    for point in (points[position] for position in wrt):
        elements = point.view(-1)
        slopes = torch.zeros_like(elements)
        for element, slope in zip(elements.unbind(), slopes.unbind(), strict=True):
            middle = element.item()
            slope.copy_((moved(element, middle + STEP) - moved(element, middle - STEP)) / (2 * STEP))
            element.fill_(middle)
        found.append(slopes.view_as(point))
    return found


def inner_product(ys: Sequence[Tensor], gs: Sequence[Tensor]) -> Tensor:
    """The sum of all products `y g`. Shape: `()`."""
    return torch.stack([(y * g).sum() for y, g in zip(ys, gs, strict=True)]).sum()


def backward(
    ys: Sequence[Tensor], inputs: Sequence[Tensor], gs: Sequence[Tensor], create_graph: bool = False
) -> list[Tensor]:
    """`torch.autograd.grad` with zeros for None, also if no output has a graph."""
    connected = [(y, g) for y, g in zip(ys, gs, strict=True) if y.requires_grad]
    if not connected:
        return [torch.zeros_like(x) for x in inputs]
    outputs, upstream = zip(*connected, strict=True)
    found = torch.autograd.grad(outputs, inputs, upstream, create_graph=create_graph, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def random_upstream(ys: Sequence[Tensor], seed: int = SEED) -> list[Tensor]:
    """Random upstream gradients of both signs, none of them near 0."""
    generator = torch.Generator().manual_seed(seed)
    gs = []
    for y in ys:
        noise = torch.rand(y.shape, dtype=torch.float64, generator=generator) * 2 - 1
        gs.append((noise + torch.where(noise < 0, -0.5, 0.5)).to(y))
    return gs

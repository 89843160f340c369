"""Forward and backward of one fake-quantizer, as a candidate."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from qat.measure.benchmark.candidate import Candidate, Work
from qat.measure.benchmark.paths import path_of
from qat.quantizers import Quantizer, compile_kernels

Function = Callable[[Tensor], Tensor]


def peer(
    name: str, make: Callable[[], Function], x: Tensor, g: Tensor, package: str | None = None
) -> Candidate:
    """A quantizer of another framework."""
    return Candidate(name, lambda: Work(_both_ways(make(), x, g)), package)


def ours(name: str, make: Callable[[], Quantizer], x: Tensor, g: Tensor, compiled: bool = True) -> Candidate:
    """A quantizer of this package: compiled kernels, where there is a compiler, or eager ones."""

    def build() -> Work:
        quantizer = make()
        if compiled:
            compile_kernels(quantizer, x.device)
        return Work(_both_ways(quantizer, x, g), lambda: path_of(quantizer, x))

    return Candidate(name, build)


def _both_ways(function: Function, x: Tensor, g: Tensor) -> Callable[[], object]:
    """The function on x, and the gradient g back to x and, of a module, to its parameters."""
    x = x.detach().requires_grad_()
    parameters = function.parameters() if isinstance(function, nn.Module) else ()
    wanted = [x, *(p for p in parameters if p.requires_grad)]
    # Not `backward()`: it would add to the gradient of the call before.
    return lambda: torch.autograd.grad(function(x), wanted, g)

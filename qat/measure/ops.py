"""One fake-quantizer, forward and backward: ours, the peers', and the least that it can cost."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from qat.measure import peer_brevitas, peer_torch_ao
from qat.measure.rounds import Candidate, TimedCall
from qat.measure.step import path_of
from qat.quantizers import Quantizer, activation_quantizer, compile_kernels, weight_quantizer

BITS = 4
FLOOR = "x * 2, g * 2"  # one read and one write of memory in each direction, which every quantizer needs
OBSERVED, LEARNED, PER_TENSOR = "qat, observed", "qat, learned", peer_torch_ao.PER_TENSOR
OP_REFERENCES = {FLOOR: "floor", OBSERVED: "observed"}
SCALING = (FLOOR, OBSERVED, LEARNED, PER_TENSOR)
"""The candidates whose cost is measured against the size of the tensor."""
UNIT = 5_000  # elements of one image there: sizes are multiples of it
BYTES = 48  # per element: the most that a learned scale without a compiler holds at a time, and a reserve


def op_candidates(shape: Sequence[int], device: str) -> list[Candidate]:
    """All quantizers at 4 bits, on a tensor of normal numbers whose first axis is the channel axis."""
    x, g = random_operands(shape, device)
    quantizer = partial(activation_quantizer, x, BITS, signed=True)
    ours: dict[str, Callable[[], Quantizer]] = {
        "qat, fixed": lambda: quantizer().eval(),
        OBSERVED: quantizer,
        "qat, by channel": lambda: weight_quantizer(x, BITS, axis=0),
        LEARNED: lambda: quantizer(scale="learned"),
    }
    torch_ao, brevitas = peer_torch_ao.quantizers(x, BITS), peer_brevitas.quantizers(x, BITS)
    return [
        Candidate(FLOOR, lambda: TimedCall(lambda: (x * 2, g * 2))),
        *(Candidate(name, partial(_both_ways, make, x, g, compiled=True)) for name, make in ours.items()),
        *(
            Candidate(f"{name}, QAT_COMPILE=0", partial(_both_ways, make, x, g))
            for name, make in ours.items()
        ),
        *(Candidate(name, partial(_both_ways, make, x, g)) for name, make in torch_ao.items()),
        *(Candidate(name, partial(_both_ways, make, x, g), "brevitas") for name, make in brevitas.items()),
    ]


def random_operands(shape: Sequence[int], device: str) -> tuple[Tensor, Tensor]:
    """A tensor to quantize and the gradient of the result: normal numbers, the same each time."""
    generator = torch.Generator().manual_seed(0)
    x, g = (torch.randn(*shape, generator=generator).to(device) for _ in range(2))
    return x, g


def scaling_candidates(size: int, device: str) -> list[Candidate]:
    """The candidates `SCALING` on a tensor `(size / UNIT, 8, 25, 25)`."""
    return [c for c in op_candidates((size // UNIT, 8, 25, 25), device) if c.name in SCALING]


def too_large(size: int, device: str) -> str:
    """Why a tensor of this size is left out; empty if its quantizers fit in memory."""
    free = torch.cuda.mem_get_info()[0] if device == "cuda" else psutil.virtual_memory().available
    if BYTES * size <= free:
        return ""
    return f"{size:,} elements need about {BYTES * size / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"


def _both_ways(make: Callable[[], Any], x: Tensor, g: Tensor, compiled: bool = False) -> TimedCall:
    """Forward on x, and backward from the gradient g to x and to the parameters."""
    quantizer, x = make(), x.detach().requires_grad_()
    if compiled:
        compile_kernels(quantizer, x.device)
    parameters = quantizer.parameters() if isinstance(quantizer, nn.Module) else ()
    wanted = [x, *(p for p in parameters if p.requires_grad)]
    return TimedCall(
        # Not `backward()`, which would add to the gradient of the previous call.
        lambda: torch.autograd.grad(quantizer(x), wanted, g),
        lambda: path_of(quantizer, x) if isinstance(quantizer, Quantizer) else "",
    )

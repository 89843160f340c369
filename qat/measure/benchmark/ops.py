"""One fake-quantizer, forward and backward: ours, the peers', and the floor."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from qat.measure.benchmark import peer_brevitas, peer_torch_ao
from qat.measure.benchmark.both_ways import ours
from qat.measure.benchmark.candidate import Candidate, Work
from qat.quantizers import Quantizer, activation_quantizer, weight_quantizer

FLOOR = "x * 2, g * 2"  # two passes over the memory, which no quantizer can do without
OBSERVED, LEARNED = "qat, observed", "qat, learned"
REFERENCES = {FLOOR: "floor", OBSERVED: "observed"}
BITS = 4


def candidates(shape: Sequence[int], device: torch.device) -> list[Candidate]:
    """All quantizers, at 4 bits, on normal numbers of both signs.

    Args:
        shape: of the tensor; its first axis is that of the channels, where each has its scale.
        device: that it lies on.
    """
    x, g = numbers(shape, device)
    makers: dict[str, Callable[[], Quantizer]] = {
        "qat, fixed": lambda: activation_quantizer(x, BITS, signed=True).eval(),
        OBSERVED: lambda: observed(x),
        "qat, by channel": lambda: weight_quantizer(x, BITS, axis=0),
        LEARNED: lambda: learned(x),
    }
    return [
        floor(x, g),
        *(ours(name, make, x, g) for name, make in makers.items()),
        *(ours(f"{name}, QAT_COMPILE=0", make, x, g, compiled=False) for name, make in makers.items()),
        *peer_torch_ao.quantizers(x, g, BITS),
        *peer_brevitas.quantizers(x, g, BITS),
    ]


def numbers(shape: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """A tensor to quantize and the gradient of the result: normal numbers, the same each time."""
    generator = torch.Generator().manual_seed(0)
    x, g = (torch.randn(*shape, generator=generator).to(device) for _ in range(2))
    return x, g


def floor(x: Tensor, g: Tensor) -> Candidate:
    """One read and one write each way, into fresh memory."""
    return Candidate(FLOOR, lambda: Work(lambda: (x * 2, g * 2)))


def observed(x: Tensor) -> Quantizer:
    """An activation's quantizer that averages the batches' maxima."""
    return activation_quantizer(x, BITS, signed=True)


def learned(x: Tensor) -> Quantizer:
    """An activation's quantizer whose scale is trained."""
    return activation_quantizer(x, BITS, signed=True, scale="learned")

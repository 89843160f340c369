"""One training step of a small network: float, quantized by us in every mode, quantized by the peers."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qat.layers import Quantization, quantize
from qat.measure.benchmark import peer_brevitas, peer_torch_ao
from qat.measure.benchmark.candidate import Candidate, Work
from qat.measure.benchmark.paths import paths_in
from qat.memory import checkpoint_blocks, packed_activations
from qat.models import MODELS
from qat.quantizers import compile_kernels

SHAPES = {"small_cnn": (1, 28, 28), "resnet8": (3, 32, 32), "resnet20": (3, 32, 32)}
"""The networks and their images: those of MNIST, and of CIFAR-10."""
BITS = 4


@dataclass(frozen=True)
class Mode:
    """How a network trains.

    Args:
        config: of its quantization; None: float.
        compiled: the model by `torch.compile`, without a graph break.
        channels_last: weights and images in that memory format.
        packed: saved activations as codes.
        checkpointed: its blocks recomputed in the backward.
        eager_kernels: quantizers as with QAT_COMPILE=0.
    """

    config: Quantization | None = None
    compiled: bool = False
    channels_last: bool = False
    packed: bool = False
    checkpointed: bool = False
    eager_kernels: bool = False


W4A4 = Quantization(weight_bits=BITS, activation_bits=BITS)
ALL_LEARNED = Quantization(BITS, BITS, weight_scale="learned", activation_scale="learned")
FLOAT, FLOAT_COMPILED = "float", "float, compiled"
OURS, COMPILED, LEARNED = "qat", "qat, compiled", "qat, learned scales"
REFERENCES = {FLOAT: "float", FLOAT_COMPILED: "compiled", OURS: "qat"}
MODES = {
    FLOAT: Mode(),
    FLOAT_COMPILED: Mode(compiled=True),
    "float, channels_last": Mode(channels_last=True),
    OURS: Mode(W4A4),
    f"{OURS}, QAT_COMPILE=0": Mode(W4A4, eager_kernels=True),
    COMPILED: Mode(W4A4, compiled=True),
    f"{OURS}, channels_last": Mode(W4A4, channels_last=True),
    f"{OURS}, packed": Mode(W4A4, packed=True),
    f"{OURS}, checkpointed": Mode(W4A4, checkpointed=True),
    f"{OURS}, packed, checkpointed": Mode(W4A4, packed=True, checkpointed=True),
    LEARNED: Mode(ALL_LEARNED),
}
Prepare = Callable[[nn.Module, Tensor], nn.Module]


def _brevitas(collect: int, model: nn.Module, images: Tensor) -> nn.Module:
    return peer_brevitas.network(model, BITS, collect)


PEERS: dict[str, tuple[Prepare, str | None]] = {
    "torch.ao FX": (peer_torch_ao.fx, None),
    "torchao PT2E, 8 bits": (peer_torch_ao.pt2e, "torchao"),
    "Brevitas": (partial(_brevitas, peer_brevitas.LEARNS), peer_brevitas.PACKAGE),
    "Brevitas, first 300": (partial(_brevitas, peer_brevitas.COLLECTS), peer_brevitas.PACKAGE),
}


def candidates(model: str, batch_size: int, device: torch.device) -> list[Candidate]:
    """The step of one network on a batch of random images, in all modes and by all peers.

    Args:
        model: a name in `SHAPES`.
        batch_size: images a step.
        device: that it trains on.
    """
    images, targets = random_batch(model, batch_size, device)

    def of_peer(prepare: Prepare) -> Work:
        return Work(training_step(prepare(_network(model, device), images), images, targets))

    own = [Candidate(name, partial(train_in, mode, model, images, targets)) for name, mode in MODES.items()]
    peers = [
        Candidate(name, partial(of_peer, prepare), package) for name, (prepare, package) in PEERS.items()
    ]
    return own + peers


def random_batch(model: str, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Images `(N, C, H, W)` in [0, 1] as the network takes them, and classes `(N,)`; the same each time."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(size, *SHAPES[model], generator=generator)
    return images.to(device), torch.randint(10, (size,), generator=generator).to(device)


def train_in(mode: Mode, model: str, images: Tensor, targets: Tensor) -> Work:
    """The step of one network in one mode."""
    network = _network(model, images.device)
    if mode.config is not None:
        quantize(network, mode.config, images[:2])
    if mode.channels_last:
        network = network.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    if mode.checkpointed:
        checkpoint_blocks(network, ["blocks.*", *(["stem"] if hasattr(network, "stem") else [])])
    path = partial(paths_in, network, images)
    if mode.compiled:
        network.compile(fullgraph=True)  # in place: it stays a module
        return Work(training_step(network, images, targets), lambda: "graph" if mode.config else "")
    step = training_step(network, images, targets, packed_activations if mode.packed else nullcontext)
    if mode.config is not None and not mode.eager_kernels:
        compile_kernels(network, images.device)
    return Work(step, path if mode.config else str)


def training_step(
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Callable[[], object]:
    """Forward, backward and SGD, as a call.

    Args:
        model: in training mode.
        images, targets: `(N, C, H, W)` and classes `(N,)`.
        around: what the forward runs in.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> object:
        optimizer.zero_grad()
        with around():
            loss = F.cross_entropy(model(images), targets)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _network(model: str, device: torch.device) -> nn.Module:
    """Equal weights each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MODELS[model](SHAPES[model]).to(device).train()

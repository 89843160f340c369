"""One training step in one mode."""

from collections import Counter
from contextlib import ExitStack, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from qat.measure.modes import Mode
from qat.measure.rounds import TimedCall
from qat.memory import packed_activations, saved_bytes
from qat.quantizers import Quantizer


class TrainStep:
    """Forward, backward and SGD with the cross-entropy loss, for a network that was built for the mode."""

    def __init__(self, network: nn.Module, mode: Mode) -> None:
        self.network = network
        self.mode = mode
        self.optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
        self.last_loss = torch.tensor(torch.nan)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """The forward. Shape: `(N, C, H, W)`, int64 `(N,)` -> `()`."""
        with packed_activations() if self.mode.packed else nullcontext():
            return cross_entropy(self.network(images), labels)

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Take the step, leave the gradients in place, and return the loss `()`."""
        self.optimizer.zero_grad()
        loss = self.loss(images, labels)
        loss.backward()
        self.optimizer.step()
        self.last_loss = loss.detach()
        return self.last_loss

    def outcome(self) -> dict[str, Tensor]:
        """The loss, the state and the gradients after a step."""
        named = self.network.named_parameters()
        gradients = {f"{name}.grad": p.grad for name, p in named if p.grad is not None}
        return {"loss": self.last_loss} | self.network.state_dict() | gradients

    def on(self, images: Tensor, labels: Tensor) -> TimedCall:
        """The step on one batch, as a call to be timed; the images get the memory format of the mode."""
        if self.mode.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        graph = "graph" if self.mode.quantized else ""
        return TimedCall(
            lambda: self(images, labels),
            lambda: graph if self.mode.compiled else paths_in(self.network, images),
        )

    def saved_bytes(self, images: Tensor) -> int:
        """Bytes that autograd keeps between forward and backward."""
        with packed_activations() if self.mode.packed else nullcontext():
            return saved_bytes(self.network, images).total


def path_of(quantizer: Quantizer, x: Tensor) -> str:
    """How a quantizer processes this tensor: `compiled` or `eager`."""
    return "compiled" if quantizer.uses_compiled_kernels(x) else "eager"


def paths_in(network: nn.Module, images: Tensor) -> str:
    """How the quantizers run: `compiled`, `eager`, or how many are compiled, `12/21`; empty without any."""
    paths: Counter[str] = Counter()

    def count(quantizer: Quantizer, args: tuple[Tensor]) -> None:
        paths[path_of(quantizer, args[0])] += 1

    with ExitStack() as hooks, torch.no_grad():
        for module in network.modules():
            if isinstance(module, Quantizer):
                hooks.enter_context(module.register_forward_pre_hook(count))
        network(images)
    return next(iter(paths), "") if len(paths) < 2 else f"{paths['compiled']}/{paths.total()}"

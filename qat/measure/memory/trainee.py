"""A network that trains in one mode, step by step."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from qat.memory import packed_activations


class Trainee:
    """A network with SGD and the cross-entropy loss.

    Args:
        model: as `Case.build` gives it.
        packed: whether its forward runs inside `packed_activations`.
    """

    def __init__(self, model: nn.Module, packed: bool) -> None:
        self.model = model
        self.packed = packed
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """The forward. Shape: `(N, C, H, W)`, int64 `(N,)` -> `()`."""
        with packed_activations() if self.packed else nullcontext():
            return cross_entropy(self.model(images), labels)

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        """One step of training: its loss `()`; the gradients stay for who wants to see them."""
        self.optimizer.zero_grad()
        loss = self.loss(images, labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def batch(number: int, size: int, image: tuple[int, ...], classes: int, device: str) -> tuple[Tensor, Tensor]:
    """Random images in [0, 1] and labels, others for each number, and every third time three times as bright.

    With equal batches an observer that moves twice would go unseen.

    Shape: `(size, *image)`, int64 `(size,)`.
    """
    generator = torch.Generator().manual_seed(number)
    images = torch.rand(size, *image, generator=generator).mul_((1 + number % 3) / 3)
    labels = torch.randint(classes, (size,), generator=generator)
    return images.to(device), labels.to(device)
